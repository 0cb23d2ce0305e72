/**
 * The program of docs/client-guide.md, which explains each part. In two terminals:
 *
 *     npm start
 *
 *     npm run example examples/client-guide/main.ts
 */
import { metrics } from "@opentelemetry/api";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import {
  connect,
  controller,
  hasReason,
  jsonValues,
  Mutex,
  ObjectCache,
  runWorkers,
  Session,
  WorkQueue,
} from "watch-fanout/client";
import { z } from "zod";

const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });

const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

const exporter = new PrometheusExporter({ preventServerStart: true });
metrics.setGlobalMeterProvider(new MeterProvider({ readers: [exporter] }));

await client.put("default", "raw/greeting", Buffer.from("hello"));

const { object } = await client.get("default", "raw/greeting");
console.log(`${object.key} is ${Buffer.from(object.value)}`);

const scope = { prefix: "raw/" };
for await (const { items } of client.list("default", scope)) console.log("Page:", items.length);
for await (const batch of client.watch("default", { scope, sendInitialEvents: true })) {
  for (const { type, object } of batch.events) console.log(`${type} ${object.key}`);
  if (batch.initial) break;
}

const Pod = z.object({ node: z.string(), phase: z.string() });
const pods = client.resource("default", jsonValues(Pod.parse));

await pods.put("ns-1/pod-1", { node: "", phase: "Starting" });
await pods.update("ns-1/pod-1", (pod) => pod && { ...pod, phase: "Pending" });

console.log("Version:", (await pods.get("ns-1/pod-1")).version);

await client.transact(async (tx) => {
  const [pod, greeting] = await Promise.all([
    tx.of(pods).get("ns-1/pod-1"),
    tx.get("default", "raw/greeting"),
  ]);
  if (pod === undefined || greeting === undefined) return;
  tx.put("default", "raw/greeting", Buffer.from(`hello, ${pod.value.phase} pod`));
  tx.delete("default", "raw/old");
});

const informer = pods.informer({
  name: "pods",
  scope: { prefix: "ns-1/" },
  indexers: { node: ({ value }) => value.node },
  onWatchError: ({ error }) => console.error(`Pods are not current: ${error.message}`),
});
informer.start();
await informer.waitForSync(stopping.signal);

const unscheduled = informer.indexer.byIndex("node", "");
console.log(`Pods without a node: ${unscheduled.map(({ key }) => key).join(", ")}`);

const pending = informer.lister().namespace("ns-1").list({ fieldSelector: "phase=Pending" });
console.log(`Pending pods: ${pending.map(({ key }) => key).join(", ")}`);

const queue = new WorkQueue<string>({ name: "pods" });
informer.addEventHandler({ onChange: (key) => queue.add(key) });

const workers = runWorkers(2, queue, reconcile, { signal: stopping.signal });

async function reconcile(key: string, signal: AbortSignal): Promise<void> {
  const pod = informer.indexer.get(key);
  if (pod === undefined || pod.value.node !== "") return;
  await pods.update(key, (current) => current && { ...current, node: "n1" }, { signal });
}

for await (const pod of pods.follow("ns-1/pod-1", { signal: stopping.signal })) {
  if (pod?.value.node === "n1") break;
}

const source = pods.sharedInformer({ scope: { prefix: "ns-1/" } });
const controlled = controller({
  name: "restarter",
  for: source,
  async reconcile(key, { object, signal }) {
    if (object?.value.phase !== "Failed") return;
    await pods.update(key, (pod) => pod && { ...pod, phase: "Pending" }, { signal });
  },
});
const controlling = controlled.run(stopping.signal);

const { modRevision } = await pods.put("ns-1/pod-1", { node: "n1", phase: "Running" });
await controlled.waitForRevision(modRevision);
console.log(`The controller sees ${source.indexer.get("ns-1/pod-1")?.value.phase}`);

const subscription = client.subscribe();
const printing = new AbortController();
for (const prefix of ["ns-1/", "raw/"]) void printKeys(prefix);

async function printKeys(prefix: string): Promise<void> {
  const { signal } = printing;
  const options = { scope: { prefix }, sendInitialEvents: true, signal };
  for await (const { events } of subscription.watch("default", options)) {
    for (const { object } of events) console.log(`${prefix} has ${object.key}`);
  }
}
await subscription.progress();
printing.abort();

const { codec } = pods;
const cache = new ObjectCache({ client, resource: "default", codec, syncTimeoutMs: 10_000 });
cache.addReference("ns-1/pod-1");
const cached = await cache.get("ns-1/pod-1");
console.log(`The cache has ${cached.key} on ${cached.value.node}`);
cache.deleteReference("ns-1/pod-1");

const session = await Session.open(client, { ttlMs: 10_000 });
await session.put("default", "services/web-1", Buffer.from("10.0.0.1:80"));

const mutex = new Mutex(session, "default", "locks/cleanup");
const lock = await mutex.lock({ signal: stopping.signal });
console.log(`The lock is ${lock.isHeld ? "held" : "lost"}`);
await lock.unlock();
await session.close();

try {
  await pods.get("ns-1/pod-9");
} catch (error) {
  if (!hasReason(error, "OBJECT_NOT_FOUND")) throw error;
  console.log("There is no ns-1/pod-9");
}

await queue.shutDownWithDrain(stopping.signal);
stopping.abort();
await Promise.all([workers, controlling]);
await informer.stop({ signal: AbortSignal.timeout(5_000) });
await cache.close();
client.close();
