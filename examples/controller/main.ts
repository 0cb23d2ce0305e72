/**
 * A controller: for each service it maintains an object of `endpoints`, with the addresses of the ready pods that the
 * service selects. It can be stopped and started at any time, and corrects what other writers do. In three terminals:
 *
 *     npm start -- --resource services=/services/ --resource pods=/pods/ --resource endpoints=/endpoints/
 *     npm run example examples/controller/main.ts
 *     bin/watch-fanout put -r services default/web '{"selector":"app=web"}'
 *     bin/watch-fanout put -r pods default/web-1 \
 *       '{"metadata":{"labels":{"app":"web"}},"address":"127.0.0.1:7001","ready":true}'
 *     bin/watch-fanout get -r endpoints default/web -o value
 */
import { isDeepStrictEqual as isSame } from "node:util";
import { connect, controller, hasReason, jsonValues, namespaceOf } from "watch-fanout/client";
import { z } from "zod";

const Service = z.object({ selector: z.string() });
const labels = z.record(z.string(), z.string());
const Pod = z.object({ metadata: z.object({ labels }), address: z.string(), ready: z.boolean() });
const Endpoints = z.object({ addresses: z.array(z.string()) });

const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const services = client.resource("services", jsonValues(Service.parse));
const pods = client.resource("pods", jsonValues(Pod.parse));
const endpoints = client.resource("endpoints", jsonValues(Endpoints.parse));
const around = (key: string) => ({ namespace: namespaceOf(key) });
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

await controller({
  for: services,
  owns: [endpoints],
  // All services around a pod, since a change may also remove it from one.
  watches: [{ source: pods, keys: ({ key }, { lister }) => lister(services).list(around(key)) }],
  workers: 2,
  onSynced: () => console.log("The controller has synced."),
  onError: (error, key) => console.error(`${key} is tried again:`, error),
  async reconcile(key, { object: service, lister, signal }) {
    if (service === undefined) return remove(key, signal);
    const { selector: labelSelector } = service.value;
    const ready = lister(pods).list({ ...around(key), labelSelector, fieldSelector: "ready=true" });
    const wanted = { addresses: ready.map(({ value }) => value.address).sort() };
    const options = { signal, replaceUndecodable: true };
    await endpoints.update(key, (now) => (isSame(now, wanted) ? undefined : wanted), options);
  },
}).run(stopping.signal);
client.close();

async function remove(key: string, signal: AbortSignal): Promise<void> {
  await endpoints.delete(key, { signal }).catch((error: unknown) => {
    if (!hasReason(error, "OBJECT_NOT_FOUND")) throw error;
  });
}
