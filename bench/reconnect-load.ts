/**
 * Clients that connect at the same time and begin with the state, in their own process. Started by reconnect.ts,
 * which sends it messages by IPC.
 */
import { answerParent } from "./child.ts";
import { Http2Connection } from "./http2-connection.ts";
import type { MessageScanner } from "./message-scanner.ts";
import { isOpening, range, watchRequest } from "./requests.ts";
import type { Target } from "./servers.ts";

/** The messages of the parent: first to connect, then to wait until each client has one more event. */
export type ReconnectQuestion =
  | {
      readonly do: "connect";
      readonly target: Target;
      readonly url: string;
      readonly clients: number;
      readonly objects: number;
    }
  | { readonly do: "await event" };

/** Seconds until half of the clients, and until all, have the state and a watch from its revision. */
export interface Reconnected {
  readonly halfSeconds: number;
  readonly lastSeconds: number;
  /** CPU share of the load until then, as a fraction of one core. */
  readonly loadCores: number;
}

const perClient: { readonly event: Promise<void> }[] = [];

answerParent<ReconnectQuestion>(async (question) => {
  if (question.do === "await event") {
    await Promise.all(perClient.map(({ event }) => event));
    return undefined;
  }
  const started = performance.now();
  const cpuBefore = process.cpuUsage();
  const readyAfter: number[] = [];
  await Promise.all(
    Array.from({ length: question.clients }, async () => {
      await becomeReady(question);
      readyAfter.push((performance.now() - started) / 1_000);
    }),
  );
  const [halfSeconds = 0] = readyAfter.slice(Math.ceil(question.clients / 2) - 1);
  const lastSeconds = readyAfter.at(-1) ?? 0;
  const { user, system } = process.cpuUsage(cpuBefore);
  const loadCores = (user + system) / 1e6 / lastSeconds;
  return { halfSeconds, lastSeconds, loadCores } satisfies Reconnected;
});

async function becomeReady(task: ReconnectQuestion & { do: "connect" }): Promise<void> {
  const { target, url, objects } = task;
  const connection = await Http2Connection.to(url, fail);
  if (target === "watch-fanout") {
    await watchAll(connection, target, objects, { initialState: true });
    return;
  }
  const listed = await range(connection);
  checkObjects(target, listed.objects, objects);
  await watchAll(connection, target, 0, { afterRevision: listed.revision });
}

/** Resolves when the watch is open and has delivered the state, if requested. */
function watchAll(
  connection: Http2Connection,
  target: Target,
  objects: number,
  terms: Parameters<typeof watchRequest>[1],
): Promise<void> {
  return new Promise((resolve) => {
    const event = Promise.withResolvers<void>();
    perClient.push({ event: event.promise });
    let had = 0;
    let isReady = false;
    const onMessage = (scanner: MessageScanner): void => {
      if (isReady) {
        if (scanner.count > 0) event.resolve();
        return;
      }
      had += scanner.count;
      // WatchResponse of ours: initial_events_end = 3.
      isReady = target === "watch-fanout" ? scanner.number3 === 1 : isOpening(target, scanner);
      if (!isReady) return;
      checkObjects(target, had, objects);
      resolve();
    };
    const request = watchRequest(target, terms);
    connection.open(request, onMessage, () => fail(new Error(`${target} ended a stream.`)));
  });
}

function checkObjects(target: Target, had: number, expected: number): void {
  if (had === expected) return;
  throw new Error(`A client of ${target} had ${had} objects instead of ${expected}.`);
}

function fail(error: Error): void {
  void Promise.reject(error);
}
