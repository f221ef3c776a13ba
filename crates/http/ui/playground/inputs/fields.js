// The fields of a form, read from the OpenAPI schema of a model's input.

/**
 * @typedef {'line' | 'text' | 'longtext' | 'number' | 'integer' | 'boolean' | 'choice' | 'secret' | 'file' | 'list' | 'json'} FieldKind
 */

/**
 * One input of the model.
 * @typedef {object} Field
 * @property {string} name
 * @property {string} title
 * @property {string | null} description
 * @property {FieldKind} kind
 * @property {boolean} required
 * @property {boolean} nullable
 * @property {boolean} hasDefault
 * @property {unknown} defaultValue
 * @property {number | null} minimum
 * @property {number | null} maximum
 * @property {number | null} maxLength
 * @property {(string | number)[]} choices
 * @property {string | null} accept media types of a file
 * @property {Field | null} item the type of a list's entries
 * @property {boolean} deprecated
 */

/** Lists inside lists have a field each up to this depth; deeper ones are edited as JSON. */
const MOST_DEPTH = 4;
/** How many schemas are read for one input. References may form cycles, and `allOf` multiplies them. */
const MOST_SCHEMAS = 200;

/** @typedef {{schemas: Record<string, any>, left: number}} Reader what references name, and how many schemas may still be read */

/**
 * The fields of `components.schemas.Input`, in the order of `x-order`. Empty if the model takes any
 * object, or if there is no schema.
 * @param {any} document OpenAPI document
 * @returns {Field[]}
 */
export function fieldsOf(document) {
  const schemas = document?.components?.schemas ?? {};
  const input = resolve(schemas.Input ?? {}, readerOf(schemas));
  const required = new Set(Array.isArray(input.required) ? input.required : []);
  return Object.entries(input.properties ?? {})
    .map(([name, schema], index) => ({ order: orderOf(schema, index), field: fieldOf(name, schema, readerOf(schemas), required.has(name)) }))
    .sort((a, b) => a.order - b.order)
    .map(({ field }) => field);
}

/**
 * @param {Record<string, any>} schemas
 * @returns {Reader}
 */
function readerOf(schemas) {
  return { schemas, left: MOST_SCHEMAS };
}

/**
 * @param {any} schema
 * @param {number} index
 */
function orderOf(schema, index) {
  return typeof schema?.['x-order'] === 'number' ? schema['x-order'] : 1000 + index;
}

/**
 * @param {string} name
 * @param {unknown} given
 * @param {Reader} reader
 * @param {boolean} required
 * @param {number} [depth]
 * @returns {Field}
 */
function fieldOf(name, given, reader, required, depth = 0) {
  /** @type {any} */
  const raw = given !== null && typeof given === 'object' ? given : {};
  const { schema, nullable } = plain(raw, reader);
  const known = kindOf(name, schema);
  const kind = known === 'list' && depth >= MOST_DEPTH ? 'json' : known;
  return {
    name,
    title: typeof raw.title === 'string' && raw.title !== '' ? raw.title : titleOf(name),
    // The description of a referenced enum is Cog's fixed text "An enumeration."
    description: typeof raw.description === 'string' && raw.description !== '' ? raw.description : null,
    kind,
    required: required && !Object.hasOwn(raw, 'default'),
    nullable,
    hasDefault: Object.hasOwn(raw, 'default'),
    defaultValue: raw.default,
    minimum: firstNumber(schema.minimum, schema.exclusiveMinimum),
    maximum: firstNumber(schema.maximum, schema.exclusiveMaximum),
    maxLength: firstNumber(schema.maxLength),
    choices: kind === 'choice' ? schema.enum : [],
    accept: typeof schema['x-cog-accept'] === 'string' ? schema['x-cog-accept'] : null,
    item: kind === 'list' ? fieldOf('', schema.items, reader, true, depth + 1) : null,
    deprecated: raw.deprecated === true,
  };
}

/**
 * Follows references and removes the alternative `null`.
 * @param {any} raw
 * @param {Reader} reader
 * @returns {{schema: any, nullable: boolean}}
 */
function plain(raw, reader) {
  let schema = resolve(raw, reader);
  let nullable = schema.nullable === true;
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(alternatives)) {
    const others = alternatives.filter((entry) => entry?.type !== 'null');
    nullable ||= others.length < alternatives.length;
    if (others.length === 1) {
      const inner = plain(others[0], reader);
      schema = { ...schema, ...inner.schema };
      nullable ||= inner.nullable;
    }
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((/** @type {string} */ type) => type !== 'null');
    nullable ||= types.length < schema.type.length;
    schema = { ...schema, type: types.length === 1 ? types[0] : undefined };
  }
  return { schema, nullable };
}

/**
 * Follows `$ref` and merges `allOf`.
 * @param {any} schema
 * @param {Reader} reader
 * @returns {any}
 */
function resolve(schema, reader) {
  reader.left -= 1;
  if (schema === null || typeof schema !== 'object' || reader.left < 0) return {};
  if (typeof schema.$ref === 'string') {
    const { $ref, ...rest } = schema;
    const name = $ref.split('/').at(-1);
    return { ...resolve(reader.schemas[name], reader), ...rest };
  }
  if (Array.isArray(schema.allOf)) {
    const { allOf, ...rest } = schema;
    const parts = allOf.map((/** @type {any} */ part) => resolve(part, reader));
    return Object.assign({}, ...parts, rest);
  }
  return schema;
}

const LONG_NAME = /prompt|text|message|story|lyrics|content|instruction|template|question|code|caption|script/i;

/**
 * @param {string} name
 * @param {any} schema
 * @returns {FieldKind}
 */
function kindOf(name, schema) {
  if (Array.isArray(schema.enum) && schema.enum.length > 0) return 'choice';
  switch (schema.type) {
    case 'boolean':
      return 'boolean';
    case 'integer':
      return 'integer';
    case 'number':
      return 'number';
    case 'array':
      return isSimple(schema.items) ? 'list' : 'json';
    case 'string':
      return stringKind(name, schema);
    default:
      return 'json';
  }
}

/**
 * @param {string} name
 * @param {any} schema
 * @returns {FieldKind}
 */
function stringKind(name, schema) {
  if (schema.format === 'password' || schema['x-cog-secret'] === true) return 'secret';
  if (schema.format === 'uri') return 'file';
  if (typeof schema.maxLength === 'number' && schema.maxLength <= 80) return 'line';
  if (typeof schema.pattern === 'string') return 'line';
  if (LONG_NAME.test(name) || (typeof schema.default === 'string' && (schema.default.length > 60 || schema.default.includes('\n')))) return 'longtext';
  return 'text';
}

/**
 * Whether the entries of a list can have a field each. Lists of objects are edited as JSON.
 * @param {any} items
 */
function isSimple(items) {
  return ['string', 'integer', 'number'].includes(items?.type) || typeof items?.$ref === 'string' || Array.isArray(items?.enum);
}

/**
 * @param {...unknown} values
 * @returns {number | null}
 */
function firstNumber(...values) {
  return /** @type {number | undefined} */ (values.find((value) => typeof value === 'number')) ?? null;
}

/** @param {string} name */
function titleOf(name) {
  return name.split('_').filter((word) => word !== '').map((word) => word[0].toUpperCase() + word.slice(1)).join(' ');
}

/**
 * Whether an input is described by the schema at all. Handlers take any object.
 * @param {any} document
 */
export function takesAnyObject(document) {
  return fieldsOf(document).length === 0 && document?.components?.schemas?.Input?.additionalProperties === true;
}
