// A client and a worker of BullMQ: node bullmq.mjs SOCKET WORKERS. Each line of stdin is the number of an operation to
// submit. It prints "ready" once, "stored N" when Redis has acknowledged a submit, and "finished N" when Redis has
// acknowledged the end. It ends with stdin.
import { createInterface } from 'node:readline';
import { Queue, Worker } from 'bullmq';

const [socket, workers] = process.argv.slice(2);
const connection = () => ({ path: socket, maxRetriesPerRequest: null });

// One write for all that happened in a turn of the event loop.
let said = '';
function say(line) {
  if (said === '') setImmediate(() => { process.stdout.write(said); said = ''; });
  said += line + '\n';
}

function fail(err) {
  console.error(err);
  process.exit(1);
}

const queue = new Queue('work', { connection: connection() });
const worker = new Worker('work', async () => {}, { connection: connection(), concurrency: Number(workers) });
worker.on('completed', (job) => say(`finished ${job.data.number}`));
for (const event of ['failed', 'error']) worker.on(event, (...args) => fail(args.find((arg) => arg instanceof Error)));
queue.on('error', fail);
await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()]);
say('ready');

const lines = createInterface({ input: process.stdin });
lines.on('line', (number) => {
  queue.add('noop', { number: Number(number) }).then(() => say(`stored ${number}`), fail);
});
lines.on('close', () => process.exit(0));
