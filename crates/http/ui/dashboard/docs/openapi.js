// Reads an OpenAPI document for the docs page: its operations, their parameters, and an example of the
// body that a client sends.

/**
 * @typedef {object} Parameter
 * @property {string} name
 * @property {string} in `path`, `query`, `header`, or `body` for the fields of the body
 * @property {boolean} required
 * @property {string} type
 * @property {string} description
 * @property {unknown} fallback the value if it is absent; undefined if there is none
 */

/**
 * @typedef {object} Operation
 * @property {string} method upper case
 * @property {string} path
 * @property {string} summary
 * @property {string} description
 * @property {boolean} deprecated
 * @property {Parameter[]} parameters
 * @property {string | null} contentType of the body; null without a body
 * @property {unknown} body an example; undefined without a body
 * @property {{status: string, description: string}[]} responses
 */

const METHODS = ['get', 'post', 'put', 'patch', 'delete', 'head', 'options'];

/** Schemas may refer to themselves; an example ends at this depth. */
const MAX_DEPTH = 6;

/**
 * The operations of a document, in its order.
 * @param {any} openapi
 * @param {string} [base] the path that the document's paths are below, relative to the server's root
 * @returns {Operation[]}
 */
export function operations(openapi, base = '') {
  const prefix = base === '' ? '' : `/${base.replace(/^\/|\/$/g, '')}`;
  return Object.entries(openapi?.paths ?? {}).flatMap(([path, item]) =>
    METHODS.filter((method) => item?.[method]).map((method) => operation(openapi, prefix + path, method, item)),
  );
}

/**
 * The documents by their API, in order. Each model of Cog's API has a document of its own.
 * @template {{api: string, title: string}} T
 * @param {T[]} documents
 * @returns {{api: string, title: string, documents: T[]}[]}
 */
export function byApi(documents) {
  const apis = [...new Set(documents.map(({ api }) => api))];
  return apis.map((api) => {
    const own = documents.filter((document) => document.api === api);
    return { api, title: own.length > 1 ? own[0].title.split(': ', 1)[0] : own[0].title, documents: own };
  });
}

/**
 * Whether an operation contains every word of a search, in any case.
 * @param {Operation} op
 * @param {string} search
 * @returns {boolean}
 */
export function matches(op, search) {
  const text = `${op.method} ${op.path} ${op.summary} ${op.description}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/**
 * An example value for a schema.
 * @param {any} openapi
 * @param {any} schema
 * @param {number} [depth]
 * @returns {unknown}
 */
export function exampleOf(openapi, schema, depth = 0) {
  const own = resolve(openapi, schema);
  if (!own || depth > MAX_DEPTH) return null;
  if (own.example !== undefined) return own.example;
  if (own.default !== undefined) return own.default;
  if (Array.isArray(own.examples) && own.examples.length > 0) return own.examples[0];
  if (own.const !== undefined) return own.const;
  if (Array.isArray(own.enum)) return own.enum[0];
  if (Array.isArray(own.allOf)) return merged(own.allOf.map((/** @type {any} */ part) => exampleOf(openapi, part, depth + 1)));
  const choice = (own.anyOf ?? own.oneOf)?.find((/** @type {any} */ part) => part?.type !== 'null');
  if (choice) return exampleOf(openapi, choice, depth + 1);
  return exampleOfType(openapi, own, depth);
}

/**
 * A command that sends the operation with curl, with its example body. Parameters of the path stay
 * in capital letters, for the reader to replace.
 * @param {Operation} op
 * @param {URL} root the server's root
 * @param {boolean} tokens whether the server has tokens
 * @returns {string}
 */
export function curl(op, root, tokens) {
  const path = op.path.replace(/^\//, '').replace(/\{([^}]+)\}/g, (_, name) => name.toUpperCase());
  const query = op.parameters
    .filter((parameter) => parameter.in === 'query' && parameter.required)
    .map((parameter) => `${encodeURIComponent(parameter.name)}=${parameter.name.toUpperCase()}`)
    .join('&');
  const url = root.href + path + (query === '' ? '' : `?${query}`);
  const parts = [`curl ${op.method === 'GET' ? '' : `-X ${op.method} `}${shellQuoted(url)}`];
  if (tokens) parts.push('-H "Authorization: Bearer $TIDEGATE_API_TOKEN"');
  if (op.contentType === 'application/json') {
    parts.push("-H 'Content-Type: application/json'", `-d ${shellQuoted(JSON.stringify(op.body))}`);
  }
  if (op.contentType === 'multipart/form-data') parts.push("-F 'content=@FILE'");
  return parts.join(' \\\n  ');
}

/**
 * A text as one word of a POSIX shell.
 * @param {string} text
 * @returns {string}
 */
function shellQuoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {any} openapi
 * @param {string} path
 * @param {string} method
 * @param {any} item
 * @returns {Operation}
 */
function operation(openapi, path, method, item) {
  const op = item[method];
  const content = resolve(openapi, op.requestBody)?.content ?? {};
  const contentType = 'application/json' in content ? 'application/json' : (Object.keys(content)[0] ?? null);
  const schema = contentType === null ? null : content[contentType]?.schema;
  return {
    method: method.toUpperCase(),
    path,
    summary: text(op.summary) || text(op.operationId) || `${method.toUpperCase()} ${path}`,
    description: text(op.description),
    deprecated: op.deprecated === true,
    parameters: [...parameters(openapi, [...(item.parameters ?? []), ...(op.parameters ?? [])]), ...fields(openapi, schema)],
    contentType,
    body: contentType === null ? undefined : (content[contentType]?.example ?? exampleOf(openapi, schema)),
    responses: Object.entries(op.responses ?? {}).map(([status, response]) => ({
      status,
      description: text(resolve(openapi, response)?.description),
    })),
  };
}

/**
 * @param {any} openapi
 * @param {any[]} list those of the path first, which those of the operation override
 * @returns {Parameter[]}
 */
function parameters(openapi, list) {
  const byName = new Map(list.map((entry) => resolve(openapi, entry)).filter(Boolean).map((entry) => [`${entry.in} ${entry.name}`, entry]));
  return [...byName.values()].map((entry) => ({
    name: text(entry.name),
    in: text(entry.in),
    required: entry.required === true,
    type: typeName(openapi, entry.schema),
    description: text(entry.description),
    fallback: resolve(openapi, entry.schema)?.default,
  }));
}

/**
 * The fields of a body. Those of its `input` are listed as `input.NAME`, because they are what a user
 * of a model looks for.
 * @param {any} openapi
 * @param {any} schema
 * @param {string} [prefix]
 * @returns {Parameter[]}
 */
function fields(openapi, schema, prefix = '') {
  const own = resolve(openapi, schema);
  return Object.entries(own?.properties ?? {}).flatMap(([name, property]) => {
    const value = resolve(openapi, property) ?? {};
    const field = {
      name: prefix + name,
      in: 'body',
      required: Array.isArray(own.required) && own.required.includes(name),
      type: typeName(openapi, property),
      description: text(value.description),
      fallback: value.default,
    };
    const inner = name === 'input' && prefix === '' ? fields(openapi, inputSchema(openapi, value), 'input.') : [];
    return [field, ...inner];
  });
}

/**
 * The schema with the properties of an input, which some documents wrap in `allOf` or `anyOf`.
 * @param {any} openapi
 * @param {any} value
 * @returns {any}
 */
function inputSchema(openapi, value) {
  if (value.properties) return value;
  const parts = [...(value.allOf ?? []), ...(value.anyOf ?? []), ...(value.oneOf ?? [])];
  return parts.map((part) => resolve(openapi, part)).find((part) => part?.properties);
}

/**
 * A schema's type as a word.
 * @param {any} openapi
 * @param {any} schema
 * @param {number} [depth]
 * @returns {string}
 */
function typeName(openapi, schema, depth = 0) {
  const own = resolve(openapi, schema);
  if (!own || depth > MAX_DEPTH) return 'any';
  if (Array.isArray(own.enum)) return own.enum.map((/** @type {unknown} */ value) => JSON.stringify(value)).join(' | ');
  const choices = own.anyOf ?? own.oneOf ?? own.allOf;
  if (Array.isArray(choices)) return [...new Set(choices.map((choice) => typeName(openapi, choice, depth + 1)))].join(' | ');
  if (own.type === 'array') return `array of ${typeName(openapi, own.items, depth + 1)}`;
  const type = Array.isArray(own.type) ? own.type.join(' | ') : text(own.type) || (own.properties ? 'object' : 'any');
  return typeof own.format === 'string' ? `${type} (${own.format})` : type;
}

/**
 * @param {any} openapi
 * @param {any} schema
 * @param {number} depth
 * @returns {unknown}
 */
function exampleOfType(openapi, schema, depth) {
  const type = Array.isArray(schema.type) ? schema.type.find((/** @type {string} */ name) => name !== 'null') : schema.type;
  if (type === 'object' || schema.properties) return exampleObject(openapi, schema, depth);
  if (type === 'array') return [exampleOf(openapi, schema.items, depth + 1)];
  if (type === 'integer' || type === 'number') return schema.minimum ?? 1;
  if (type === 'boolean') return false;
  if (type === 'string') return schema.format === 'uri' ? 'https://example.com/file' : 'text';
  return null;
}

/**
 * An object with its required properties and `input`; all others are optional and would only be noise.
 * @param {any} openapi
 * @param {any} schema
 * @param {number} depth
 * @returns {Record<string, unknown>}
 */
function exampleObject(openapi, schema, depth) {
  const names = Object.keys(schema.properties ?? {}).filter((name) => name === 'input' || schema.required?.includes(name));
  return Object.fromEntries(names.map((name) => [name, exampleOf(openapi, schema.properties[name], depth + 1)]));
}

/**
 * @param {unknown[]} parts
 * @returns {unknown}
 */
function merged(parts) {
  return parts.every((part) => part !== null && typeof part === 'object') ? Object.assign({}, ...parts) : parts[0];
}

/**
 * What a reference within the document points to.
 * @param {any} openapi
 * @param {any} value
 * @param {number} [depth]
 * @returns {any}
 */
function resolve(openapi, value, depth = 0) {
  const reference = value?.$ref;
  if (typeof reference !== 'string') return value;
  if (!reference.startsWith('#/') || depth > MAX_DEPTH) return undefined;
  const names = reference.slice(2).split('/').map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'));
  const target = names.reduce((at, name) => (Object.hasOwn(Object(at), name) ? at[name] : undefined), openapi);
  return resolve(openapi, target, depth + 1);
}

/**
 * @param {unknown} value
 * @returns {string}
 */
function text(value) {
  return typeof value === 'string' ? value : '';
}
