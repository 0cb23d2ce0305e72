import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { serveThings } from "../server/served.ts";
import { enveloped, jsonStream, messagesIn, paths, serveWeb } from "./http.ts";
import { nameOf, type SubscribeMessage, webClient, webProtocols } from "./web-clients.ts";

/*
 * Subscribe, which has a stream in both directions and so needs HTTP/2.
 */

const protocols = webProtocols
  .filter(({ httpVersion }) => httpVersion === "2")
  .map((how) => [nameOf(how), how] as const);

/** Requests that are sent one by one. */
class Requests implements AsyncIterable<object> {
  readonly #waiting: object[] = [];
  #wake = (): void => {};
  #isOver = false;

  send(request: object): void {
    this.#waiting.push({ request });
    this.#wake();
  }

  end(): void {
    this.#isOver = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<object, void, void> {
    while (!this.#isOver || this.#waiting.length > 0) {
      const next = this.#waiting.shift();
      if (next !== undefined) yield next;
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}

const add = (id: number, more: object = {}): object => ({
  case: "add",
  value: { id: BigInt(id), watch: { resource: "things", sendInitialEvents: true, ...more } },
});

function keysIn({ id, response }: SubscribeMessage): string[] {
  if (response.case !== "watch") return [];
  const { events } = response.value as { events: readonly { object?: { key: string } }[] };
  return events.map(({ object }) => `${id} ${object?.key}`);
}

test.each(protocols)("%s: several watches share a stream", async (_, how) => {
  const { server, storage } = await serveThings({ server: { webDoor: new ConnectDoor() } });
  await storage.put({ key: "a", value: Buffer.from("1") });
  const requests = new Requests();
  requests.send(add(1));
  requests.send(add(2, { scope: { case: "key", value: "b" } }));
  const client = webClient(server.port, how);
  const seen: string[] = [];
  const ended: bigint[] = [];
  for await (const message of client.subscribe(requests)) {
    seen.push(...keysIn(message));
    if (message.response.case === "ended") ended.push(message.id);
    // The first watch has its initial state.
    else if (keysIn(message)[0] === "1 a") {
      await storage.put({ key: "b", value: Buffer.alloc(200_000) });
    }
    if (seen.length < 3 || ended.length > 0) continue;
    for (const id of [1n, 2n]) requests.send({ case: "remove", value: { id } });
    requests.end();
  }
  expect(seen.toSorted()).toEqual(["1 a", "1 b", "2 b"]);
  expect(ended).toEqual([1n, 2n]);
  expect(server.openStreams).toBe(0);
});

test.each(protocols)("%s: a request that is refused does not end the stream", async (_, how) => {
  const { server } = await serveThings({ server: { webDoor: new ConnectDoor() } });
  const requests = new Requests();
  requests.send({ case: "grant", value: { id: 7n, messages: 1n } });
  const client = webClient(server.port, how);
  const refused: unknown[] = [];
  for await (const { id, response } of client.subscribe(requests)) {
    refused.push([id, response.case, (response.value as { code: number }).code]);
    requests.end();
  }
  expect(refused).toEqual([[7n, "refused", Code.NotFound]]);
});

test("a request that is not JSON ends the stream", async () => {
  const { request, server } = await serveWeb("2");
  const body = Buffer.concat([enveloped("{}"), enveloped("[]")]);
  const messages = messagesIn((await request(paths.subscribe, jsonStream, body)).body);
  const [first, end] = messages.map(({ content }) => JSON.parse(content.toString()) as object);
  expect(first).toMatchObject({ refused: { details: [{ reason: "INVALID_REQUEST" }, {}] } });
  expect(end).toMatchObject({ error: { code: "invalid_argument" } });
  expect(messages.map(({ flags }) => flags)).toEqual([0, 2]);
  expect(server.openStreams).toBe(0);
});
