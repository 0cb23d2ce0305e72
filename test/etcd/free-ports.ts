import { createServer } from "node:net";

/**
 * Ports without a listener, below the range for outgoing connections (from 32768 on Linux): so they are still free when
 * a killed etcd is started again.
 */
export async function freePorts(count: number): Promise<readonly number[]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = 15_000 + Math.floor(Math.random() * 17_000);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports];
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.on("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
