"""The only serializer: values, events, blobs and digests as bytes, and back. Imports events and errors.

Others say `from holdfast.core import codec`: `pack unpack resolve draft decode chain genesis fingerprint dump load` and
the plain data between log and store (`Head Draft Write Group Stored Snapshot Summary`).
"""

from __future__ import annotations

from holdfast.core.codec.blobs import (
    deflate as deflate,
    inflate as inflate,
)
from holdfast.core.codec.records import (
    Blob as Blob,
    Draft as Draft,
    Group as Group,
    Head as Head,
    Origin as Origin,
    Record as Record,
    Snapshot as Snapshot,
    Stored as Stored,
    Summary as Summary,
    Take as Take,
    Write as Write,
    joined as joined,
    moment as moment,
)
from holdfast.core.codec.secrets import (
    Secret as Secret,
)
from holdfast.core.codec.values import (
    JSON_NULL as JSON_NULL,
    RETIRED as RETIRED,
    Fetch as Fetch,
    MessagesRef as MessagesRef,
    appended as appended,
    as_json as as_json,
    blob_refs as blob_refs,
    body_hash as body_hash,
    chain as chain,
    changes as changes,
    decode as decode,
    document as document,
    draft as draft,
    draft_result as draft_result,
    dump as dump,
    fingerprint as fingerprint,
    genesis as genesis,
    hidden_value as hidden_value,
    increased as increased,
    load as load,
    make_blob as make_blob,
    messages_value as messages_value,
    open_blob as open_blob,
    pack as pack,
    parse as parse,
    raw as raw,
    resolve as resolve,
    running as running,
    same_fields as same_fields,
    schema as schema,
    shape as shape,
    small_draft as small_draft,
    text as text,
    unpack as unpack,
    unpacked_field as unpacked_field,
)
