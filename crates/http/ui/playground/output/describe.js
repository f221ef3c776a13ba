// The expected output in words, for the panel before the first run.

/**
 * @param {any} document OpenAPI document
 * @returns {string}
 */
export function describeOutput(document) {
  const schemas = document?.components?.schemas ?? {};
  const schema = schemas.Output;
  if (schema === undefined || Object.keys(schema).every((key) => key === 'title')) return 'A JSON value, shown as soon as the model produces it.';
  if (schema['x-cog-array-display'] === 'concatenate') return 'Text, shown word by word as the model produces it.';
  if (schema['x-cog-array-type'] === 'iterator') return `A list of ${plural(schema.items, schemas)}, each shown as soon as the model produces it.`;
  if (schema.type === 'array') return `A list of ${plural(schema.items, schemas)}.`;
  if (schema.type === 'object' && schema.properties !== undefined) {
    const parts = Object.entries(schema.properties).map(([name, property]) => `${name} (${singular(property, schemas).replace(/^an? /, '')})`);
    return `An object with ${join(parts)}.`;
  }
  const words = singular(schema, schemas);
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}

/**
 * @param {any} schema
 * @param {Record<string, any>} schemas
 * @returns {string}
 */
function singular(schema, schemas) {
  const target = typeof schema?.$ref === 'string' ? schemas[schema.$ref.split('/').at(-1)] : schema;
  if (Array.isArray(target?.enum)) return `one of ${join(target.enum.map(String))}`;
  switch (target?.type) {
    case 'string':
      return target.format === 'uri' ? 'a file' : 'text';
    case 'integer':
      return 'an integer';
    case 'number':
      return 'a number';
    case 'boolean':
      return 'true or false';
    case 'array':
      return `a list of ${plural(target.items, schemas)}`;
    default:
      return 'a JSON value';
  }
}

/**
 * @param {any} schema
 * @param {Record<string, any>} schemas
 */
function plural(schema, schemas) {
  const target = typeof schema?.$ref === 'string' ? schemas[schema.$ref.split('/').at(-1)] : schema;
  /** @type {Record<string, string>} */
  const words = { string: target?.format === 'uri' ? 'files' : 'texts', integer: 'integers', number: 'numbers', boolean: 'booleans' };
  return words[target?.type] ?? 'JSON values';
}

/** @param {string[]} parts */
function join(parts) {
  if (parts.length < 2) return parts.join('');
  return `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`;
}
