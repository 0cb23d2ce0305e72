/**
 * A controller: for each service it maintains an object of `endpoints`, with the addresses of the ready pods that the
 * service selects. It compares states and does not depend on events, so it can be stopped and started at any time,
 * and corrects what other writers do to its endpoints. In three terminals:
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
    // A value from another writer may be invalid, and is corrected too.
    if (error instanceof DecodeFailure) queue.add(error.key);
  },
});
const informers = [services, pods, written];

/** The keys of services, which are also the keys of their endpoints. */
const queue = new WorkQueue<string>({ name: "services" });

services.addEventHandler({ onChange: (key) => queue.add(key) });
// Finds endpoints whose service was deleted while no controller ran, and those that others have changed.
written.addEventHandler({ onChange: (key) => queue.add(key) });
pods.addEventHandler({
  onChange(key) {
    // The services that select the pod now are not enough: it may have left one with this change.
    const around = services.lister().list({ namespace: namespaceOf(key) });
    for (const service of around) queue.add(service.key);
  },
});

const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

try {
  for (const informer of informers) informer.start();
  // Before all objects are known, a service would seem to have no pods.
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

/** Brings the endpoints of a service to their desired state. */
async function reconcile(key: string, signal: AbortSignal): Promise<void> {
  const service = services.indexer.get(key);
  if (service === undefined) return remove(key, signal);
  const { selector } = service.value;
  const selected = pods.lister().list({ namespace: namespaceOf(key), labelSelector: selector });
  const ready = selected.filter(({ value }) => value.ready);
  const addresses = ready.map(({ value }) => value.address).sort();
  await endpoints.update(
    key,
    // Undefined: they are correct, and nothing is written.
    (current) => (isDeepStrictEqual(current?.addresses, addresses) ? undefined : { addresses }),
    { signal, replaceUndecodable: true },
  );
}

/** If the service is created again meanwhile, its key is queued again, and so its endpoints are created again. */
async function remove(key: string, signal: AbortSignal): Promise<void> {
  try {
    await endpoints.delete(key, { signal });
  } catch (error) {
    if (!hasReason(error, "OBJECT_NOT_FOUND")) throw error;
  }
}
