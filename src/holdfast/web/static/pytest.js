// A failure as a test: the agent is run anew with the same input, in memory, and expected to fail in the same way.

/** The text of a test: of the task's header, its first event, and how it failed. */
export function asPytest(header, begun, failure) {
  const name = header.id.replace(/[^A-Za-z0-9]+/g, "_").replace(/^_|_$/g, "").toLowerCase();
  const agent = /^[A-Za-z_][A-Za-z0-9_]*$/.test(header.agent) ? header.agent : "my_agent";
  return `import holdfast
from holdfast.testing import expect

from agents import ${agent}  # the module that declares it


def test_${name}_fails_as_it_did():
    with holdfast.open("memory:") as app:
        done = app.run(${agent}, ${python(begun.event.input ?? {})})
    expect(done).failed(${python(failure.type)})
`;
}

/** JSON as Python writes it. */
function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}
