/**
 * Writes what forms need of the API's description: of each field its type, limits, default and choices, by its path.
 *
 *     node tools/form-fields.mjs           write src/api/config-fields.ts and src/api/request-fields.ts
 *     node tools/form-fields.mjs --check   fail when they are not made from openapi.json
 */
import { readFileSync, writeFileSync } from "node:fs";

const at = (path) => new URL(`../${path}`, import.meta.url);
const description = JSON.parse(readFileSync(at("openapi.json"), "utf8"));

/** Requests that forms send. Pages that start no training need nothing of the config, so it has a file of its own. */
const REQUESTS = [
  "BucketIn",
  "BudgetIn",
  "CamelProjectIn",
  "ChannelIn",
  "CredentialsIn",
  "CreditIn",
  "DatasetChange",
  "DatasetFromHub",
  "Extension",
  "NewBranch",
  "FactorCode",
  "HubPush",
  "InvitationIn",
  "LiveSettings",
  "NeedIn",
  "NewApiToken",
  "NewEvaluation",
  "NewExport",
  "NewHubToken",
  "SecretIn",
  "NewJob",
  "NewDocuments",
  "NewModel",
  "NewPasskey",
  "QuestionsIn",
  "SamplingSettings",
  "ScriptIn",
  "SignUp",
  "ViewIn",
];

/** Of these the form also shows what the server says about a field. */
const EXPLAINED = ["NewExport", "SamplingSettings"];

const LIMITS = ["type", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "pattern", "enum"];
const SHOWN = ["default", "defaults", "choices", "empty", "lines"];
const TEXTS = ["title", "description"];

function resolved(schema) {
  if (!schema.$ref) return schema;
  const { $ref, ...own } = schema;
  return { ...named($ref.split("/").at(-1)), ...own };
}

function named(name) {
  const { schemas } = description.components;
  // A shape that is also answered has two forms; a form sends.
  const found = schemas[`${name}-Input`] ?? schemas[name];
  if (!found) throw new Error(`openapi.json has no ${name}`);
  return found;
}

/** Alternatives become one: no value goes without saying, and a constant is a word that is allowed instead. */
function single(schema) {
  const { anyOf, ...own } = resolved(schema);
  if (!anyOf) return own;
  const alternatives = anyOf.map(resolved).filter(({ type }) => type !== "null");
  const word = alternatives.find((alternative) => alternative.const !== undefined);
  const main = alternatives.find((alternative) => alternative.const === undefined) ?? word;
  return { ...main, ...own, ...(word && word !== main && { word: word.const }) };
}

const pick = (schema, names) => Object.fromEntries(names.filter((name) => schema[name] !== undefined).map((name) => [name, schema[name]]));

/** Fields by path. An object of free names is described by its values. */
function fieldsOf(schema, keys, nested, prefix = "") {
  return Object.entries(schema.properties ?? {}).flatMap(([name, property]) => {
    const field = single(property);
    if (field.properties) return nested ? fieldsOf(field, keys, nested, `${prefix}${name}.`) : [];
    const items = typeof field.items === "object" ? field.items : typeof field.additionalProperties === "object" ? field.additionalProperties : null;
    const known = { ...pick(field, [...keys, ...LIMITS, ...SHOWN, "word"]), ...(items && { items: pick(single(items), LIMITS) }) };
    return [[`${prefix}${name}`, known]];
  });
}

/** Parts of a request are requests of their own; parts of a config are written out. */
function source(models, textsOf, nested) {
  const parts = models.map(([name, schema]) => {
    const lines = fieldsOf(schema, textsOf(name), nested).map(([path, field]) => `  ${JSON.stringify(path)}: ${JSON.stringify(field)},\n`);
    return `\nexport const ${name} = {\n${lines.join("")}} as const;\n`;
  });
  return `// Made from openapi.json by \`make api\`; a change here is lost.\n${parts.join("")}`;
}

/** A script's job is described at its address. */
const scriptJob = resolved(description.paths["/api/ml-jobs"].post.requestBody.content["application/json"].schema);
const requests = [...REQUESTS.map((name) => [name, named(name)]), ["NewMlJob", scriptJob], ["Overrides", single(scriptJob.properties.requirements)]];

const files = {
  "src/api/config-fields.ts": source([["TrainConfig", named("TrainConfig")]], () => TEXTS, true),
  "src/api/request-fields.ts": source(requests, (name) => (EXPLAINED.includes(name) ? ["description"] : []), false),
};

for (const [path, text] of Object.entries(files)) {
  if (!process.argv.includes("--check")) writeFileSync(at(path), text);
  else if (readFileSync(at(path), "utf8") !== text) {
    console.error(`ui/${path} is not made from ui/openapi.json. Run: make api`);
    process.exitCode = 1;
  }
}
