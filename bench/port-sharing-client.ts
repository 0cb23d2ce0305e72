/** The clients of port-sharing.ts in a process of their own: open connections, and wait for a line on each. */
import { connect } from "node:net";
import { answerParent } from "./child.ts";

/** How many connections to open, all at once. 0: none; the result is that of all so far. */
export interface ConnectQuestion {
  readonly port: number;
  readonly count: number;
}

export interface Connected {
  /** Number of the new connections that each worker serves, the most first. */
  readonly spread: readonly number[];
  /** Number of all connections so far that are open and that no worker has served. */
  readonly openUnserved: number;
}

/** How long a connection may take to be served, in milliseconds. */
const waitMs = 2_000;

let openUnserved = 0;

async function open({ port, count }: ConnectQuestion): Promise<Connected> {
  const byWorker = new Map<string, number>();
  const served = Array.from({ length: count }, () => connectOne(port, byWorker));
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, count === 0 ? 0 : waitMs);
  });
  await Promise.race([count === 0 ? late : Promise.all(served), late]);
  clearTimeout(timer);
  return { spread: [...byWorker.values()].sort((a, b) => b - a), openUnserved };
}

/** Resolves when the connection is served. It stays open until the server ends it. */
function connectOne(port: number, byWorker: Map<string, number>): Promise<void> {
  openUnserved++;
  let isServed = false;
  const end = (): void => {
    if (!isServed) openUnserved--;
    isServed = true;
  };
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.on("error", () => {});
    socket.on("close", end);
    socket.on("data", (pid) => {
      end();
      byWorker.set(String(pid), (byWorker.get(String(pid)) ?? 0) + 1);
      resolve();
    });
  });
}

if (import.meta.main) answerParent<ConnectQuestion>(open);
