/** A client that asks for as much as it can, in its own process: it opens and resets watches, and lists. */
import { constants, getPriority, setPriority } from "node:os";
import { answerParent, Child } from "./child.ts";
import { type Fields, Http2Connection } from "./http2-connection.ts";
import { listRequest, watchRequest } from "./requests.ts";

/** The messages of the parent. */
type FloodQuestion =
  | {
      readonly do: "start";
      readonly url: string;
      readonly fields: Fields;
      readonly connections: number;
    }
  | { readonly do: "stop" }
  | { readonly do: "count" };

/** What the flood has done so far. */
export interface FloodCounts {
  /** Calls that were begun. */
  readonly begun: number;
  /** Lists that were answered. */
  readonly lists: number;
  /** Connections that the server has closed. */
  readonly lost: number;
}

/** Calls of one connection at once. */
const atOnce = 200;

/** The process of the flood. */
export class Flood {
  readonly #child = new Child<FloodQuestion>("./flood-load.ts");

  /** Floods the server from this many connections, with these header fields in each call. */
  async start(url: string, fields: Fields, connections: number): Promise<void> {
    await this.#child.ask({ do: "start", url, fields, connections });
  }

  async count(): Promise<FloodCounts> {
    return (await this.#child.ask({ do: "count" })) as FloodCounts;
  }

  /** Closes the connections. */
  async quiet(): Promise<void> {
    await this.#child.ask({ do: "stop" });
  }

  async stop(): Promise<void> {
    await this.#child.stop();
  }
}

if (process.send !== undefined && process.argv[1]?.endsWith("flood-load.ts")) {
  // The server, etcd and the other client come first: what is measured is the server, and not how the cores are shared.
  setPriority(Math.min(constants.priority.PRIORITY_LOW, getPriority() + 5));
  const counts = { begun: 0, lists: 0, lost: 0 };
  const open = new Set<Http2Connection>();
  let isFlooding = false;

  const flood = async (url: string, fields: Fields): Promise<void> => {
    if (!isFlooding) return;
    const connection = await Http2Connection.to(
      url,
      () => {
        counts.lost++;
        open.delete(connection);
        void flood(url, fields);
      },
      undefined,
      fields,
    );
    if (!isFlooding) {
      connection.close();
      return;
    }
    open.add(connection);
    for (let i = 0; i < atOnce; i++) next(connection, i % 4);
  };

  /** A list, a watch that is reset when it is open, and two watches that are reset at once. */
  const next = (connection: Http2Connection, kind: number): void => {
    if (!open.has(connection)) return;
    counts.begun++;
    const again = (): void => void setImmediate(() => next(connection, kind));
    if (kind === 0) {
      const listed = (): void => void counts.lists++;
      connection.open(listRequest(), listed, again);
      return;
    }
    let reset: () => void = () => {};
    const opened = (): void => {
      reset();
      again();
    };
    reset = connection.open(watchRequest("watch-fanout"), kind === 1 ? opened : () => {}, again);
    if (kind > 1) opened();
  };

  answerParent(async (question: FloodQuestion) => {
    switch (question.do) {
      case "start":
        isFlooding = true;
        for (let i = 0; i < question.connections; i++) await flood(question.url, question.fields);
        return undefined;
      case "stop":
        isFlooding = false;
        for (const connection of open) connection.close();
        open.clear();
        return undefined;
      case "count":
        return { ...counts };
    }
  });
}
