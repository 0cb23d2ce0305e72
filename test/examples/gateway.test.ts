import { Agent, type ClientRequest, get, type IncomingMessage } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { untilSeen } from "../faults/patience.ts";
import { serveThings } from "../server/served.ts";
import { Example } from "./example.ts";

const script = "gateway/main.ts";

/** One server-sent event. */
interface Sent {
  readonly id: string;
  readonly data: { readonly isState: boolean; readonly changes: readonly object[] };
}

/** A browser that follows a path. */
class Browser {
  readonly events: Sent[] = [];
  refusal: string | undefined;
  #text = "";
  readonly #request: ClientRequest;

  constructor(agent: Agent, port: number, path: string, headers: Record<string, string> = {}) {
    this.#request = get({ agent, port, path, headers, host: "127.0.0.1" }, (response) =>
      this.#read(response),
    );
    this.#request.on("error", () => {});
  }

  close(): void {
    this.#request.destroy();
  }

  #read(response: IncomingMessage): void {
    response.setEncoding("utf8").on("data", (part: string) => {
      const events = (this.#text + part).split("\n\n");
      this.#text = events.pop() ?? "";
      for (const event of events) {
        const [, id, data] = /^id: (.*)\ndata: (.*)$/.exec(event) ?? [];
        if (id === undefined || data === undefined) this.refusal = event;
        else this.events.push({ id, data: JSON.parse(data) });
      }
    });
    response.on("error", () => {});
  }
}

function changesOf({ events }: Browser): readonly object[] {
  return events.flatMap(({ data }) => data.changes);
}

async function started() {
  const served = await serveThings();
  const example = Example.start(script, ["0"], `127.0.0.1:${served.server.port}`);
  const [, port] = await example.said(/Port (\d+)\./);
  const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY });
  onTestFinished(() => agent.destroy());
  const follow = (path: string, headers?: Record<string, string>) =>
    new Browser(agent, Number(port), path, headers);
  const put = async (key: string, value: string) =>
    served.storage.put({ key, value: Buffer.from(value) });
  const until = (what: string, isTrue: () => boolean) =>
    untilSeen(what, async () => {
      served.clock.advance(10);
      return isTrue() ? true : undefined;
    });
  return { ...served, example, follow, put, until };
}

describe("The gateway", () => {
  it("follows a thousand scopes over one stream of the service", async () => {
    const { follow, put, until, recorder, server, example } = await started();
    await put("ns-7/a", "before");
    const browsers: Browser[] = [];
    // Fewer at once than may wait to be accepted: a busy machine would take a minute for the others.
    while (browsers.length < 1_000) {
      for (let i = 0; i < 200; i++) browsers.push(follow(`/things/ns-${browsers.length}/`));
      await until("all states", () => browsers.every(({ events }) => events.length > 0));
    }
    expect([recorder.open, server.openStreams]).toEqual([1, 1_001]);
    expect(browsers[7]?.events[0]?.data).toMatchObject({
      isState: true,
      changes: [{ type: "ADDED", key: "ns-7/a", value: "before" }],
    });
    for (let i = 0; i < 1_000; i++) await put(`ns-${i}/b`, `b${i}`);
    await until("all changes", () =>
      browsers.every((each, i) => changesOf(each).length === (i === 7 ? 2 : 1)),
    );
    expect(browsers.map((each) => changesOf(each).at(-1))).toEqual(
      browsers.map((_, i) => ({ type: "ADDED", key: `ns-${i}/b`, value: `b${i}` })),
    );
    for (const browser of browsers) browser.close();
    await recorder.untilEnded(1);
    expect(await example.stop()).toBe(0);
  });

  it("continues after the last event of a browser that reconnects, and refuses what the service does", async () => {
    const { follow, put, until } = await started();
    const first = follow("/things/ns-1/");
    await until("the state", () => first.events.length === 1);
    first.close();
    await put("ns-1/a", "1");
    const again = follow("/things/ns-1/", { "last-event-id": first.events[0]?.id ?? "" });
    await until("the change", () => changesOf(again).length > 0);
    expect(changesOf(again)).toMatchObject([{ key: "ns-1/a", value: "1" }]);
    expect(again.events.some(({ data }) => data.isState)).toBe(false);
    const lost = follow("/things/ns-1/", { "last-event-id": "another@1" });
    await until("the state again", () => lost.events.length > 0);
    expect(lost.events[0]?.data).toMatchObject({ isState: true, changes: [{ key: "ns-1/a" }] });
    const wrong = follow("/nothing/");
    await until("the refusal", () => wrong.refusal !== undefined);
    expect(wrong.refusal).toMatch(/^event: refused\n.*nothing/);
  });
});
