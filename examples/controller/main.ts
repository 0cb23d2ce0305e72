/**
 * A controller: for each service it keeps an object of `endpoints`, with the addresses of the pods that the service
 * selects and that are ready. What has happened does not matter to it, only what is: so it may be stopped and started
 * at any time, and puts right what others do to its endpoints. In three terminals:
 *
 *     npm start -- --resource services=/services/ --resource pods=/pods/ --resource endpoints=/endpoints/
 *
 *     npm run example examples/controller/main.ts
 *
 *     bin/watch-fanout put -r services default/web '{"selector":"app=web"}'
 *     bin/watch-fanout put -r pods default/web-1 \
 *       '{"metadata":{"labels":{"app":"web"}},"address":"127.0.0.1:7001","ready":true}'
 *     bin/watch-fanout get -r endpoints default/web -o value
 */
import { isDeepStrictEqual } from "node:util";
import {
  connect,
  DecodeFailure,
  hasReason,
  jsonValues,
  namespaceOf,
  runWorkers,
  WorkQueue,
} from "watch-fanout/client";
import { z } from "zod";

const Service = z.object({ selector: z.string() });
const Pod = z.object({
  metadata: z.object({ labels: z.record(z.string(), z.string()) }),
  address: z.string(),
  ready: z.boolean(),
});
const Endpoints = z.object({ addresses: z.array(z.string()) });

const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const endpoints = client.resource("endpoints", jsonValues(Endpoints.parse));
const services = client.resource("services", jsonValues(Service.parse)).informer();
const pods = client.resource("pods", jsonValues(Pod.parse)).informer();
const written = endpoints.informer({
  onError(error) {
    console.error(error.message);
    // What others have written may be no endpoints at all, and is to be put right as well.
    if (error instanceof DecodeFailure) queue.add(error.key);
  },
});
const informers = [services, pods, written];

/** The keys of services: those of their endpoints are the same. */
const queue = new WorkQueue<string>({ name: "services" });

services.addEventHandler({ onChange: (key) => queue.add(key) });
// Finds what was left behind by a service that went while no controller ran, and what others have written.
written.addEventHandler({ onChange: (key) => queue.add(key) });
pods.addEventHandler({
  onChange(key) {
    // A pod may have just left a service, so it is not enough to ask which ones select it now.
    const around = services.lister().list({ namespace: namespaceOf(key) });
    for (const service of around) queue.add(service.key);
  },
});

const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

try {
  for (const informer of informers) informer.start();
  // Until everything is known a service would seem to have no pods.
  await Promise.all(informers.map((informer) => informer.waitForSync(stopping.signal)));
  console.log("The controller has synced.");
  await runWorkers(2, queue, reconcile, {
    signal: stopping.signal,
    onError: (error, key) => console.error(`${key} is tried again:`, error),
  });
} catch (error) {
  if (!stopping.signal.aborted) throw error;
} finally {
  await Promise.all(informers.map((informer) => informer.stop()));
  client.close();
}

/** Makes the endpoints of this key what they should be, whatever they are. */
async function reconcile(key: string, signal: AbortSignal): Promise<void> {
  const service = services.indexer.get(key);
  if (service === undefined) return remove(key, signal);
  const { selector } = service.value;
  const selected = pods.lister().list({ namespace: namespaceOf(key), labelSelector: selector });
  const ready = selected.filter(({ value }) => value.ready);
  const addresses = ready.map(({ value }) => value.address).sort();
  await endpoints.update(
    key,
    // Undefined: they are right as they are, and nothing is written.
    (current) => (isDeepStrictEqual(current?.addresses, addresses) ? undefined : { addresses }),
    { signal, replaceUndecodable: true },
  );
}

/** Should the service come back meanwhile, so does its key, and its endpoints are made anew. */
async function remove(key: string, signal: AbortSignal): Promise<void> {
  try {
    await endpoints.delete(key, { signal });
  } catch (error) {
    if (!hasReason(error, "OBJECT_NOT_FOUND")) throw error;
  }
}
