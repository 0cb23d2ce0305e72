/**
 * The first steps, as the README has them: an informer on one namespace, and two writes. In two terminals:
 *
 *     npm start
 *
 *     npm run example examples/first-steps/main.ts
 */
import { connect, jsonValues } from "watch-fanout/client";

interface Pod {
  readonly node: string;
  readonly phase: string;
}

const client = connect({ address: "127.0.0.1:50051" });
const pods = client.resource("default", jsonValues<Pod>());

const informer = pods.informer({ scope: { prefix: "ns-2/" } });
informer.addEventHandler({
  onAdd: ({ key, value }) => console.log(`${key} is ${value.phase} on ${value.node}`),
  onUpdate: (before, { key, value }) =>
    console.log(`${key}: ${before.value.phase}, then ${value.phase}`),
});
informer.start();
await informer.waitForSync();

await pods.put("ns-2/pod-8", { node: "n1", phase: "Pending" });
await pods.update("ns-2/pod-8", (pod) => pod && { ...pod, phase: "Running" });
