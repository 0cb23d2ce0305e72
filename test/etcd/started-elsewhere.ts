/** Starts an etcd, sends its address to the parent process, and waits to be killed. */
import { startEtcd } from "./etcd.ts";

const { url } = await startEtcd();
process.send?.({ url });
setInterval(() => undefined, 60_000);
