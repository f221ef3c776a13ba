// One call of the npm client: `node client.cjs BASE_URL TOKEN` reads {"call": …, …} from stdin and
// writes what came of it as JSON.
"use strict";

const Replicate = require("replicate");

const [baseUrl, auth] = process.argv.slice(2);
const replicate = new Replicate({ auth, baseUrl: `${baseUrl}/v1` });

const calls = {
  run: ({ ref, options }) => replicate.run(ref, options),
  create: ({ options }) => replicate.predictions.create(options),
  get: ({ id }) => replicate.predictions.get(id),
  cancel: ({ id }) => replicate.predictions.cancel(id),
  wait: async ({ id }) => replicate.wait(await replicate.predictions.get(id), { interval: 50 }),
  progress: async ({ id }) => Replicate.parseProgressFromLogs(await replicate.predictions.get(id)),
  list: () => replicate.predictions.list(),
  async all() {
    const ids = [];
    for await (const page of replicate.paginate(replicate.predictions.list)) {
      ids.push(...page.map((prediction) => prediction.id));
    }
    return ids;
  },
  async stream({ ref, options }) {
    const events = [];
    for await (const { event, data } of replicate.stream(ref, options)) {
      events.push([event, data]);
    }
    return events;
  },
  async stream_files({ ref, options }) {
    const texts = [];
    for await (const { event, data } of replicate.stream(ref, options)) {
      if (event === "output") texts.push((await read(data)).text);
    }
    return texts;
  },
  model: ({ owner, name }) => replicate.models.get(owner, name),
  models: () => replicate.models.list(),
  search: ({ text }) => replicate.models.search(text),
  make_model: ({ owner, name, options }) => replicate.models.create(owner, name, options),
  collection: ({ slug }) => replicate.collections.get(slug),
  versions: ({ owner, name }) => replicate.models.versions.list(owner, name),
  version: ({ owner, name, id }) => replicate.models.versions.get(owner, name, id),
  train: ({ owner, name, version, options }) => replicate.trainings.create(owner, name, version, options),
  training: ({ id }) => replicate.trainings.get(id),
  trainings: () => replicate.trainings.list(),
  deploy: ({ options }) => replicate.deployments.create(options),
  deployment: ({ owner, name }) => replicate.deployments.get(owner, name),
  deployments: () => replicate.deployments.list(),
  redeploy: ({ owner, name, options }) => replicate.deployments.update(owner, name, options),
  undeploy: ({ owner, name }) => replicate.deployments.delete(owner, name),
  create_deployed: ({ owner, name, options }) => replicate.deployments.predictions.create(owner, name, options),
  account: () => replicate.accounts.current(),
  hardware: () => replicate.hardware.list(),
  collections: () => replicate.collections.list(),
  validate: ({ headers, body, secret }) => Replicate.validateWebhook({ headers, body }, secret),
  secret: () => replicate.webhooks.default.secret.get(),
  upload: ({ text, name, type, metadata }) => replicate.files.create(new File([text], name, { type }), metadata),
  file: ({ id }) => replicate.files.get(id),
  files: () => replicate.files.list(),
  remove: ({ id }) => replicate.files.delete(id),
  run_with_file: ({ ref, field, text, name }) => replicate.run(ref, { input: { [field]: new File([text], name) } }),
  run_files: async ({ ref, options }) => read(await replicate.run(ref, options)),
  async many({ options, count }) {
    const made = await Promise.all(Array.from({ length: count }, () => replicate.predictions.create(options)));
    return made.map((prediction) => prediction.id);
  },
};

// Every file of an output, wherever it is, with its address and its text.
async function read(value) {
  if (value instanceof ReadableStream) {
    return { url: String(value.url()), text: await (await value.blob()).text() };
  }
  if (Array.isArray(value)) return Promise.all(value.map(read));
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value).map(async ([name, one]) => [name, await read(one)]);
  return Object.fromEntries(await Promise.all(entries));
}

async function main() {
  let text = "";
  for await (const piece of process.stdin) text += piece;
  const { call, ...rest } = JSON.parse(text);
  try {
    const result = await calls[call](rest);
    process.stdout.write(JSON.stringify({ result: result === undefined ? null : result }));
  } catch (error) {
    const status = error.response ? error.response.status : null;
    process.stdout.write(JSON.stringify({ error: String(error.message), name: error.name, status }));
  }
}

main();
