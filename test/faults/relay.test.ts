import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Changing } from "./patience.ts";
import { Relay } from "./relay.ts";

/** Echoes the data of each connection, and counts it. */
let echo: Server;
let relay: Relay;
let heard: string;
const listening = new Changing();

beforeEach(async () => {
  heard = "";
  echo = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => {
      heard += chunk.toString();
      listening.changed();
      socket.write(chunk);
    });
  });
  echo.listen(0, "127.0.0.1");
  await once(echo, "listening");
  const address = echo.address();
  if (address === null || typeof address === "string") throw new Error("It does not listen.");
  relay = await Relay.to(address.port, {
    dialerOf: (bytes) => /^from (\w+)/.exec(bytes.toString())?.[1],
  });
});

afterEach(async () => {
  await relay.close();
  echo.close();
});

/** A client, what it has received, and how it ended. */
class Dialled {
  readonly socket: Socket;
  text = "";
  isClosed = false;
  readonly changing = new Changing();

  constructor() {
    this.socket = connect(relay.port, "127.0.0.1");
    this.socket.on("error", () => undefined);
    this.socket.on("data", (chunk) => {
      this.text += chunk.toString();
      this.changing.changed();
    });
    this.socket.on("close", () => {
      this.isClosed = true;
      this.changing.changed();
    });
  }

  /** Says it and waits for all of it to come back. */
  async echoed(text: string): Promise<void> {
    const { length } = this.text;
    this.socket.write(text);
    await this.changing.until(() => this.text.length >= length + text.length);
    expect(this.text.slice(length)).toBe(text);
  }

  closed(): Promise<void> {
    return this.changing.until(() => this.isClosed);
  }
}

describe("A relay", () => {
  it("passes everything on, in both directions", async () => {
    const client = new Dialled();
    await client.echoed("hello");
    await client.echoed("x".repeat(1_000_000));
    client.socket.end();
    await client.closed();
  });

  it("cut: resets open connections and accepts new ones", async () => {
    const before = new Dialled();
    await before.echoed("a");
    relay.cut();
    await before.closed();
    await new Dialled().echoed("b");
  });

  it.each([0, 1, 7, 999_999])(
    "cutAfter %i: passes that many bytes of responses, once",
    async (bytes) => {
      const client = new Dialled();
      relay.cutAfter(bytes);
      client.socket.write("x".repeat(1_000_000));
      await client.closed();
      expect(client.text.length).toBe(bytes);
      await new Dialled().echoed("x".repeat(1_000_000));
    },
  );

  it("hold: nothing passes and nothing is closed; everything passes once it is healed", async () => {
    const client = new Dialled();
    await client.echoed("a");
    relay.hold();
    const late = new Dialled();
    client.socket.write("b");
    late.socket.write("c");
    // A whole exchange past the relay, which what is held would have come before.
    const address = echo.address();
    const beside = connect(typeof address === "object" ? (address?.port ?? 0) : 0, "127.0.0.1");
    beside.write("d");
    await once(beside, "data");
    beside.destroy();
    expect(heard).toBe("ad");
    relay.heal();
    await client.changing.until(() => client.text === "ab");
    await late.changing.until(() => late.text === "c");
  });

  it("loseResponses: requests arrive, and the client gets no response until it is cut off", async () => {
    const client = new Dialled();
    relay.loseResponses();
    client.socket.write("lost");
    await listening.until(() => heard === "lost");
    relay.heal();
    await client.closed();
    expect(client.text).toBe("");
    await new Dialled().echoed("b");
  });

  it("delay: everything passes in order, also data sent after it was healed", async () => {
    const client = new Dialled();
    relay.delay(20);
    const text = Array.from({ length: 50 }, (_, i) => `${i},`).join("");
    for (const part of text.match(/.{1,3}/g) ?? []) client.socket.write(part);
    await listening.until(() => heard.length > 10);
    relay.heal();
    client.socket.write("end");
    await client.changing.until(() => client.text.endsWith("end"));
    expect(client.text).toBe(`${text}end`);
  });

  it("refuse: resets the connections of one client, and no others", async () => {
    const [one, other] = [new Dialled(), new Dialled()];
    await one.echoed("from a");
    await other.echoed("from b");
    relay.refuse("a");
    await one.closed();
    await other.echoed("still");
    const again = new Dialled();
    again.socket.write("from a");
    await again.closed();
    expect(again.text).toBe("");
    relay.heal();
    await new Dialled().echoed("from a");
  });

  it("refuse: every client, if none is named", async () => {
    relay.refuse();
    await new Dialled().closed();
    relay.heal();
    await new Dialled().echoed("a");
  });
});
