// One call of Runpod's npm client: `node platform_client.mjs BASE_URL KEY ENDPOINT` reads {"call": …, …} from stdin and
// writes the result as JSON on a line that begins with `REPORT`, because the client writes lines too.
import runpod from "runpod-sdk";

const [baseUrl, key, name] = process.argv.slice(2);
const endpoint = runpod(key, { baseUrl }).endpoint(name);

const calls = {
  run: ({ request }) => endpoint.run(request),
  runSync: ({ request, timeout }) => endpoint.runSync(request, timeout),
  status: ({ id }) => endpoint.status(id),
  statusSync: ({ id, timeout }) => endpoint.statusSync(id, timeout),
  async stream({ id, timeout }) {
    const parts = [];
    for await (const part of endpoint.stream(id, timeout)) parts.push(part);
    return parts;
  },
  cancel: ({ id }) => endpoint.cancel(id),
  health: () => endpoint.health(),
  purgeQueue: () => endpoint.purgeQueue(),
};

let text = "";
for await (const piece of process.stdin) text += piece;
const { call, ...rest } = JSON.parse(text);
const outcome = await calls[call](rest).then(
  (result) => ({ result }),
  (error) => ({ error: String(error.message), status: error.response ? error.response.status : null }),
);
console.log(`REPORT ${JSON.stringify(outcome)}`);
