import { createServer } from "node:net";

/** Below the range for outgoing connections (from 32768 on Linux): so they are still free when a killed etcd is started again. */
const firstPort = 15_000;
/** Each worker of vitest has its own: another one would take those of an etcd that is killed. Its workers count from 1. */
const portsOfWorker = 2_000;
const ownPorts = firstPort + portsOfWorker * (Number(process.env["VITEST_POOL_ID"] ?? 0) % 8);

/** Those that this process has given, most of which are in use, or will be again. */
const given = new Set<number>();

/** Ports without a listener, which are given once. */
export async function freePorts(count: number): Promise<readonly number[]> {
  const ports: number[] = [];
  while (ports.length < count) {
    const port = ownPorts + Math.floor(Math.random() * portsOfWorker);
    if (given.has(port)) continue;
    if (given.size > portsOfWorker / 2) given.clear();
    given.add(port);
    if (await isFree(port)) ports.push(port);
  }
  return ports;
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.on("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
