// The request of the playground as code: curl, Python and JavaScript.

import { writeExact } from '../../lib/exact_json.js';
import { LocalFile, mapFiles, mediaTypeOf } from '../inputs/values.js';
import { NEW_MODEL } from '../training.js';
import { Code, javascript, javascriptString, python, pythonString, shell } from './quote.js';

/**
 * @typedef {object} SampleRequest
 * @property {string} root URL of the server, with a slash at its end
 * @property {string} model
 * @property {import('../../lib/types.d.ts').RunRequest} run
 * @property {Record<string, unknown>} values
 * @property {string[]} apis
 * @property {boolean} chat
 * @property {Conversation | null} conversation that of the chat view
 */

/** The messages of a chat, and the options of its request. @typedef {{messages: object[], options: Record<string, number>}} Conversation */

/** @typedef {{id: string, label: string, text: string}} Sample */

/**
 * Every sample that this server and model can run.
 * @param {SampleRequest} request
 * @returns {Sample[]}
 */
export function samplesOf(request) {
  if (request.run.style === 'chat' || request.conversation !== null) return chatSamples(request);
  if (request.run.fields?.destination !== undefined) return trainingSamples(request);
  const samples = [
    { id: 'curl', label: 'curl', text: curl(request) },
    ...clientSamples(request),
    ...openaiSamples(request),
    { id: 'python', label: 'Python', text: plainPython(request) },
    { id: 'javascript', label: 'JavaScript', text: plainJavascript(request) },
  ];
  return samples;
}

/** @param {SampleRequest} request */
function clientSamples(request) {
  const { style } = request.run;
  if (style === 'runpod') return [{ id: 'runpod', label: 'Python (runpod)', text: runpodPython(request) }];
  if (style !== 'replicate') return [];
  return [
    { id: 'replicate', label: 'Python (replicate)', text: replicatePython(request) },
    { id: 'replicate-js', label: 'JavaScript (replicate)', text: replicateJavascript(request) },
  ];
}

/** The prompt of a chat model as a conversation of OpenAI's API. @param {SampleRequest} request */
function openaiSamples(request) {
  if (!request.chat || !request.apis.includes('openai')) return [];
  const { messages, prompt } = request.values;
  const conversation = Array.isArray(messages) ? messages : [{ role: 'user', content: typeof prompt === 'string' ? prompt : 'Hello' }];
  const isSet = (/** @type {string} */ name) => typeof request.values[name] === 'number';
  const options = Object.fromEntries(CHAT_OPTIONS.filter(isSet).map((name) => [name, request.values[name]]));
  return [{ id: 'openai', label: 'Python (openai)', text: openaiPython(request, { model: request.model, messages: conversation, ...options }) }];
}

/** Inputs that are options of OpenAI's API with the same name. */
const CHAT_OPTIONS = ['temperature', 'top_p', 'max_tokens', 'frequency_penalty', 'presence_penalty', 'seed'];

/** The name of a file as it is written in the samples. @param {LocalFile} file */
function nameOf(file) {
  return file.file.name || 'file';
}

/**
 * @param {SampleRequest} request
 * @param {unknown} [input]
 */
function bodyOf({ values, run }, input = values) {
  return { ...run.fields, input };
}

/** The model as the clients of Replicate's API name it. @param {SampleRequest} request */
function referenceOf({ model, run }) {
  return run.fields?.version === undefined ? model : `${model}:${run.fields.version}`;
}

/** @param {SampleRequest} request */
function urlOf({ root, run }) {
  // The simple form of Runpod's API waits for the result; the page itself uses `/run`.
  return root + (run.style === 'runpod' ? run.path.replace(/\/run$/, '/runsync') : run.path);
}

/** @param {SampleRequest} request */
function curl(request) {
  const body = shellJson(bodyOf(request));
  const prefer = request.run.style === 'replicate' ? ["-H 'Prefer: wait'"] : [];
  const options = ['-H "Authorization: Bearer $TIDEGATE_API_TOKEN"', "-H 'Content-Type: application/json'", ...prefer];
  if (body.hasFiles || body.text.length > 100_000) {
    // `printf` is part of the shell, so the size of the body is not limited as an argument of curl is.
    return `printf '%s' ${body.text} |\n${command(`curl -sS ${shell(urlOf(request))}`, [...options, '--data-binary @-'])}`;
  }
  return command(`curl -sS ${shell(urlOf(request))}`, [...options, `-d ${body.text}`]);
}

/**
 * @param {string} start
 * @param {string[]} options
 */
function command(start, options) {
  return [start, ...options].join(' \\\n  ');
}

/**
 * A JSON text as one word of the shell. Files are read by the shell.
 * @param {object} body
 */
function shellJson(body) {
  const text = writeExact(mapFiles(body, () => ''));
  let mark = 'FILE';
  while (text.includes(mark)) mark += '_';
  /** @type {LocalFile[]} */
  const files = [];
  const json = writeExact(mapFiles(body, (file) => `${mark}${files.push(file) - 1}.`));
  const word = shell(json).replace(new RegExp(`${mark}(\\d+)\\.`, 'g'), (_match, index) => {
    const file = files[Number(index)];
    return `data:${mediaTypeOf(file.file)};base64,'"$(base64 -w0 ${shell(nameOf(file))})"'`;
  });
  return { text: word, hasFiles: files.length > 0 };
}

/** @param {SampleRequest} request */
function pythonValues({ values }) {
  return mapFiles(values, (file) => new Code(`data_uri(${pythonString(nameOf(file))}, ${pythonString(mediaTypeOf(file.file))})`));
}

const PYTHON_DATA_URI = `
def data_uri(path, media_type):
    with open(path, "rb") as file:
        return f"data:{media_type};base64," + base64.b64encode(file.read()).decode()

`;

/** @param {SampleRequest} request */
function plainPython(request) {
  const files = hasFiles(request);
  const prefer = request.run.style === 'replicate' ? '\n        "Prefer": "wait",' : '';
  return `${files ? 'import base64\n' : ''}import json
import os
import urllib.request
${files ? PYTHON_DATA_URI : ''}
request = urllib.request.Request(
    ${pythonString(urlOf(request))},
    data=json.dumps(${python(bodyOf(request, pythonValues(request)), 1)}).encode(),
    headers={
        "Authorization": f"Bearer {os.environ.get('TIDEGATE_API_TOKEN', '')}",
        "Content-Type": "application/json",${prefer}
    },
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["output"])
`;
}

/** @param {SampleRequest} request */
function hasFiles({ values }) {
  let found = false;
  mapFiles(values, () => { found = true; });
  return found;
}

/** @param {SampleRequest} request */
function replicatePython(request) {
  const input = mapFiles(request.values, (file) => new Code(`open(${pythonString(nameOf(file))}, "rb")`));
  return `# pip install replicate
import os

import replicate

client = replicate.Client(
    api_token=os.environ.get("TIDEGATE_API_TOKEN", "none"),
    base_url=${pythonString(request.root.replace(/\/$/, ''))},
)
output = client.run(
    ${pythonString(referenceOf(request))},
    input=${python(input, 1)},
)
print(output)
`;
}

/** @param {SampleRequest} request */
function replicateJavascript(request) {
  const input = mapFiles(request.values, (file) => new Code(`await readFile(${javascriptString(nameOf(file))})`));
  const imports = hasFiles(request) ? "import { readFile } from 'node:fs/promises';\n" : '';
  return `// npm install replicate
${imports}import Replicate from 'replicate';

const replicate = new Replicate({
    auth: process.env.TIDEGATE_API_TOKEN ?? 'none',
    baseUrl: ${javascriptString(`${request.root}v1`)},
});
const output = await replicate.run(${javascriptString(referenceOf(request))}, {
    input: ${javascript(input, 1)},
});
console.log(output);
`;
}

/** @param {SampleRequest} request */
function trainingSamples(request) {
  return [
    { id: 'curl', label: 'curl', text: `${createDestinationCurl(request)}\n${curl(request)}` },
    { id: 'replicate', label: 'Python (replicate)', text: trainingPython(request) },
  ];
}

/** The model that gets the trained version, as it is created. @param {SampleRequest} request */
function destinationOf({ run }) {
  const [owner, name = ''] = (run.fields?.destination ?? '').split('/');
  return { owner, name, ...NEW_MODEL };
}

/** @param {SampleRequest} request */
function createDestinationCurl(request) {
  const created = command(`curl -sS ${shell(`${request.root}v1/models`)}`, [
    '-H "Authorization: Bearer $TIDEGATE_API_TOKEN"',
    "-H 'Content-Type: application/json'",
    `-d ${shell(JSON.stringify(destinationOf(request)))}`,
  ]);
  return `# Creates the destination; the answer is 409 if it exists.\n${created}`;
}

/** @param {SampleRequest} request */
function trainingPython(request) {
  const { owner, name, visibility, hardware } = destinationOf(request);
  const version = request.run.path.split('/').at(-2) ?? '';
  return `# pip install replicate
${hasFiles(request) ? 'import base64\n' : ''}import os

import replicate
${hasFiles(request) ? PYTHON_DATA_URI : ''}
client = replicate.Client(
    api_token=os.environ.get("TIDEGATE_API_TOKEN", "none"),
    base_url=${pythonString(request.root.replace(/\/$/, ''))},
)
try:
    client.models.create(
        ${pythonString(owner)}, ${pythonString(name)}, visibility=${pythonString(visibility)}, hardware=${pythonString(hardware)}
    )
except replicate.exceptions.ReplicateError as error:
    # The destination exists.
    if error.status != 409:
        raise
training = client.trainings.create(
    model=${pythonString(request.model)},
    version=${pythonString(version)},
    input=${python(pythonValues(request), 1)},
    destination=${pythonString(request.run.fields?.destination ?? '')},
)
print(training.id)
`;
}

/** @param {SampleRequest} request */
function runpodPython(request) {
  const files = hasFiles(request);
  return `# pip install runpod
${files ? 'import base64\n' : ''}import os

import runpod
${files ? PYTHON_DATA_URI : ''}
runpod.api_key = os.environ.get("TIDEGATE_API_TOKEN", "none")
runpod.endpoint_url_base = ${pythonString(`${request.root}v2`)}

endpoint = runpod.Endpoint(${pythonString(request.model)})
output = endpoint.run_sync(${python({ input: pythonValues(request) })})
print(output)
`;
}

/** @param {SampleRequest} request */
function plainJavascript(request) {
  const files = hasFiles(request);
  const values = mapFiles(request.values, (file) => new Code(`dataUri(${javascriptString(nameOf(file))}, ${javascriptString(mediaTypeOf(file.file))})`));
  const prefer = request.run.style === 'replicate' ? "\n        'Prefer': 'wait'," : '';
  const start = files
    ? "import { readFileSync } from 'node:fs';\n\nconst dataUri = (path, mediaType) => `data:${mediaType};base64,${readFileSync(path, 'base64')}`;\n\n"
    : '';
  return `${start}const response = await fetch(${javascriptString(urlOf(request))}, {
    method: 'POST',
    headers: {
        'Authorization': \`Bearer \${process.env.TIDEGATE_API_TOKEN}\`,
        'Content-Type': 'application/json',${prefer}
    },
    body: JSON.stringify(${javascript(bodyOf(request, values), 1)}),
});
console.log((await response.json()).output);
`;
}

/** The body of a chat, without `stream`. @typedef {{model: string, messages: object[], [option: string]: unknown}} ChatBody */

/**
 * @param {SampleRequest} request
 * @returns {Sample[]}
 */
function chatSamples(request) {
  const { messages, options } = request.conversation ?? { messages: [{ role: 'user', content: 'Hello' }], options: {} };
  const body = { model: request.model, messages, ...options };
  const url = `${request.root}v1/chat/completions`;
  const curlText = command(`curl -sS ${shell(url)}`, [
    '-H "Authorization: Bearer $TIDEGATE_API_TOKEN"',
    "-H 'Content-Type: application/json'",
    `-d ${shell(JSON.stringify(body))}`,
  ]);
  return [
    { id: 'curl', label: 'curl', text: curlText },
    { id: 'openai', label: 'Python (openai)', text: openaiPython(request, body) },
    { id: 'openai-js', label: 'JavaScript (openai)', text: openaiJavascript(request, body) },
    { id: 'python', label: 'Python', text: chatPython(url, body) },
    { id: 'javascript', label: 'JavaScript', text: chatJavascript(url, body) },
  ];
}

/**
 * @param {SampleRequest} request
 * @param {ChatBody} body
 */
function openaiPython({ root }, { model, messages, ...options }) {
  const lines = Object.entries(options).map(([name, value]) => `    ${name}=${python(value)},\n`).join('');
  return `# pip install openai
import os

import openai

client = openai.OpenAI(
    api_key=os.environ.get("TIDEGATE_API_TOKEN", "none"),
    base_url=${pythonString(`${root}v1`)},
)
stream = client.chat.completions.create(
    model=${pythonString(model)},
    messages=${python(messages, 1)},
${lines}    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
`;
}

/**
 * @param {SampleRequest} request
 * @param {ChatBody} body
 */
function openaiJavascript({ root }, { model, messages, ...options }) {
  const lines = Object.entries(options).map(([name, value]) => `    ${name}: ${javascript(value)},\n`).join('');
  return `// npm install openai
import OpenAI from 'openai';

const client = new OpenAI({
    apiKey: process.env.TIDEGATE_API_TOKEN ?? 'none',
    baseURL: ${javascriptString(`${root}v1`)},
});
const stream = await client.chat.completions.create({
    model: ${javascriptString(model)},
    messages: ${javascript(messages, 1)},
${lines}    stream: true,
});
for await (const chunk of stream) {
    process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
}
`;
}

/**
 * @param {string} url
 * @param {object} body
 */
function chatPython(url, body) {
  return `import json
import os
import urllib.request

request = urllib.request.Request(
    ${pythonString(url)},
    data=json.dumps(${python(body, 1)}).encode(),
    headers={
        "Authorization": f"Bearer {os.environ.get('TIDEGATE_API_TOKEN', '')}",
        "Content-Type": "application/json",
    },
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["choices"][0]["message"]["content"])
`;
}

/**
 * @param {string} url
 * @param {object} body
 */
function chatJavascript(url, body) {
  return `const response = await fetch(${javascriptString(url)}, {
    method: 'POST',
    headers: {
        'Authorization': \`Bearer \${process.env.TIDEGATE_API_TOKEN}\`,
        'Content-Type': 'application/json',
    },
    body: JSON.stringify(${javascript(body, 1)}),
});
console.log((await response.json()).choices[0].message.content);
`;
}
