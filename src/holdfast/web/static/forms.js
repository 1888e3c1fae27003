// Forms made of JSON Schema: buttons for few choices, fields for the rest. What a field can't be is typed as JSON.

/** What a schema refers to, inside the same document. */
function followed(schema, root) {
  if (!schema || typeof schema !== "object") return {};
  const reference = typeof schema.$ref === "string" && schema.$ref.startsWith("#/") ? schema.$ref.slice(2).split("/") : null;
  if (!reference) return schema;
  const found = reference.reduce((at, part) => (at && Object.hasOwn(at, part) ? at[part] : {}), root);
  return { ...found, ...Object.fromEntries(Object.entries(schema).filter(([name]) => name !== "$ref")) };
}

/** The few values that a schema allows, as [label, value]; none if there are many. */
export function choices(given, root = given) {
  const schema = followed(given, root);
  if (schema.type === "boolean") return [["Yes", true], ["No", false]];
  const values = Array.isArray(schema.enum) ? schema.enum : (schema.anyOf || schema.oneOf || []).every((one) => one && Object.hasOwn(one, "const")) ? (schema.anyOf || schema.oneOf || []).map((one) => one.const) : [];
  return values.length <= 12 ? values.map((one) => [typeof one === "string" ? one : JSON.stringify(one), one]) : [];
}

/** The fields of a schema: one for each property of an object, else a single one without a name. */
export function fieldsOf(given) {
  const schema = followed(given, given);
  if (schema.type !== "object" || !schema.properties) return [field("", schema, given, true)];
  const required = new Set(schema.required || []);
  return Object.entries(schema.properties).map(([name, one]) => field(name, followed(one, given), given, required.has(name)));
}

function field(name, schema, root, required) {
  const few = choices(schema, root);
  const types = (schema.anyOf || [schema]).map((one) => followed(one, root).type).filter((one) => one !== "null");
  const type = types.length === 1 ? types[0] : "";
  const kind = few.length ? "choice" : type === "string" ? "text" : type === "integer" || type === "number" ? "number" : "json";
  return { name, kind, type, choices: few, required, initial: schema.default, about: schema.description || "" };
}

/** What a field is called beside it. */
export function labelOf(one) {
  const told = { number: one.type === "integer" ? "a whole number" : "a number", json: "JSON" }[one.kind];
  return [one.name || "Answer", told ? ` (${told})` : "", one.required ? "" : ", optional", one.about ? `: ${one.about}` : ""].join("");
}

/** The value that was typed into the fields; throws what is wrong, in words. */
export function valueOf(fields, typed) {
  if (fields.length === 1 && fields[0].name === "") return one(fields[0], typed[""] ?? "");
  const found = new Map();
  for (const field1 of fields) {
    const text = typed[field1.name] ?? "";
    if (text === "" && !field1.required) continue;
    found.set(field1.name, one(field1, text));
  }
  return Object.fromEntries(found);
}

function one(field1, text) {
  const named = field1.name ? `“${field1.name}” ` : "";
  if (field1.kind === "choice") {
    const chosen = field1.choices.find(([label]) => label === text);
    if (!chosen) throw new Error(`Choose ${field1.name ? `“${field1.name}”` : "one"}.`);
    return chosen[1];
  }
  if (field1.kind === "text") return text;
  if (field1.kind === "number") {
    const number = Number(text);
    if (text.trim() === "" || !Number.isFinite(number) || (field1.type === "integer" && !Number.isInteger(number))) throw new Error(`${named}is not ${field1.type === "integer" ? "a whole number" : "a number"}.`.trim());
    return number;
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${named}is not JSON.`.trim());
  }
}
