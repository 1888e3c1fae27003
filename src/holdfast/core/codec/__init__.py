"""The only serializer: values, events, blobs and digests as bytes, and back. Imports events and errors.

Import it as `from holdfast.core import codec`. Most used: `pack unpack resolve draft decode chain fingerprint dump`,
and the plain data between log and store: `Head Draft Write Group Stored LoggedEvent Snapshot Summary UniqueKey`.
"""

from __future__ import annotations

from holdfast.core.codec.blobs import (
    blob_refs as blob_refs,
    deflate as deflate,
    inflate as inflate,
    make_blob as make_blob,
    open_blob as open_blob,
    same_fields as same_fields,
    shape as shape,
)
from holdfast.core.codec.digests import (
    body_hash as body_hash,
    chain as chain,
    fingerprint as fingerprint,
    genesis as genesis,
    running as running,
)
from holdfast.core.codec.documents import (
    MALFORMED as MALFORMED,
    Fetch as Fetch,
    JsonStruct as JsonStruct,
    MessagesRef as MessagesRef,
    as_json as as_json,
    document as document,
    dump as dump,
    load as load,
    parse as parse,
    raw as raw,
    read_as as read_as,
    same_json as same_json,
    schema as schema,
)
from holdfast.core.codec.drafts import (
    RETIRED as RETIRED,
    decode as decode,
    draft as draft,
    draft_result as draft_result,
    small_draft as small_draft,
    unpacked_field as unpacked_field,
)
from holdfast.core.codec.edits import (
    JSON_NULL as JSON_NULL,
    How as How,
    appended as appended,
    edited as edited,
    increased as increased,
    is_apart as is_apart,
    is_folded as is_folded,
    plain_json as plain_json,
    wrapped as wrapped,
)
from holdfast.core.codec.opaque import (
    RECORD_ADDED as RECORD_ADDED,
    RECORD_ERASED as RECORD_ERASED,
    RecordBlob as RecordBlob,
    RecordHeader as RecordHeader,
    draft_erased as draft_erased,
    draft_record as draft_record,
    erased_seqs as erased_seqs,
    is_live as is_live,
    make_record_blob as make_record_blob,
    open_record_blob as open_record_blob,
    read_record as read_record,
    record_blobs as record_blobs,
)
from holdfast.core.codec.read_only import (
    READ_ONLY as READ_ONLY,
    HandedOut as HandedOut,
    ordinary as ordinary,
)
from holdfast.core.codec.records import (
    MAX_AT_US as MAX_AT_US,
    MIN_AT_US as MIN_AT_US,
    Blob as Blob,
    Draft as Draft,
    Erasure as Erasure,
    Group as Group,
    Head as Head,
    LogCut as LogCut,
    LoggedEvent as LoggedEvent,
    Origin as Origin,
    Snapshot as Snapshot,
    Stored as Stored,
    Summary as Summary,
    Tombstone as Tombstone,
    UniqueKey as UniqueKey,
    Write as Write,
    merge_writes as merge_writes,
    moment as moment,
)
from holdfast.core.codec.secrets import (
    Secret as Secret,
    hidden_value as hidden_value,
    reveal as reveal,
    secret_texts as secret_texts,
)
from holdfast.core.codec.strict import (
    check_blob as check_blob,
    check_event as check_event,
)
from holdfast.core.codec.values import (
    Restore as Restore,
    exact_text as exact_text,
    messages_value as messages_value,
    nests_deeper as nests_deeper,
    pack as pack,
    pack_typed as pack_typed,
    resolve as resolve,
    text as text,
    unpack as unpack,
)
