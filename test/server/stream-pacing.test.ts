import { once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { StreamPacing } from "../../src/server/stream-pacing.ts";
import { FakeClock } from "../fake-clock.ts";
import { RawConnection } from "./raw-connection.ts";

/** An HTTP/2 frame: of type 1, which opens a stream and says that nothing follows. */
function headersFrame(id: number): Buffer {
  const fields = [
    [":method", "GET"],
    [":scheme", "http"],
    [":path", "/"],
    [":authority", "a"],
    // So that a read of 64 KiB is of few streams.
    ["filling", "x".repeat(100)],
  ] as const;
  const literals = fields.map(([name, value]) =>
    Buffer.concat([
      Buffer.from([0, name.length]),
      Buffer.from(name),
      Buffer.from([value.length]),
      Buffer.from(value),
    ]),
  );
  const block = Buffer.concat(literals);
  const head = Buffer.alloc(9);
  head.writeUIntBE(block.length, 0, 3);
  head[3] = 1;
  head[4] = 5;
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, block]);
}

/** How many streams are in what Node.js reads at once. */
const perRead = Math.ceil((64 * 1024) / headersFrame(1).length);

/** A server that paces, which counts the streams of the connection that opens most. */
async function paced(waiting: { count: number }) {
  const clock = new FakeClock();
  const opened = new Map<object, number>();
  const isOther = (session: object): boolean => session === opened.keys().next().value;
  const pacing = new StreamPacing(clock, (session) => (isOther(session) ? 0 : waiting.count));
  const server = createServer();
  server.on("stream", (stream) => {
    const session = stream.session as ServerHttp2Session;
    opened.set(session, (opened.get(session) ?? 0) + 1);
    pacing.opened(session);
    stream.respond({ ":status": 200 }, { endStream: true });
  });
  server.on("sessionError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const other = new RawConnection(port);
  await other.open("/").drain().ended;
  clock.runTurn();
  return {
    clock,
    flood: (count: number): void => {
      const socket = connect(port, "127.0.0.1");
      onTestFinished(() => void socket.destroy());
      socket.resume();
      const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
      const frames = Array.from({ length: count }, (_, i) => headersFrame(2 * i + 1));
      socket.write(
        Buffer.concat([Buffer.from(preface), Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]), ...frames]),
      );
    },
    /** How many streams the flood has opened, once nothing more of it is read. */
    floodOpened: async (): Promise<number> => {
      // Each answer to another client takes several turns of the event loop.
      for (let asked = 0; asked < 5; asked++) await other.open("/").drain().ended;
      return [...opened.values()][1] ?? 0;
    },
  };
}

test("Of a connection that opens streams as fast as it can, only so many are taken in a turn", async () => {
  const { clock, flood, floodOpened } = await paced({ count: 0 });
  const count = 5_000;
  flood(count);
  let before = 0;
  for (let turns = 0; before < count; turns++) {
    expect(turns).toBeLessThan(count / 100);
    const opened = await floodOpened();
    // What has been read already is still dealt with: 128 streams, and the rest of one read.
    expect(opened - before).toBeLessThanOrEqual(128 + 2 * perRead);
    before = opened;
    clock.runTurn();
  }
});

test("A connection of whose streams many wait to be opened is not read from until fewer do", async () => {
  const waiting = { count: 1_000 };
  const { clock, flood, floodOpened } = await paced(waiting);
  flood(5_000);
  const opened = await floodOpened();
  expect(opened).toBeLessThanOrEqual(2 * perRead);
  for (let turns = 0; turns < 20; turns++) clock.runTurn();
  expect(await floodOpened()).toBe(opened);
  waiting.count = 0;
  clock.runTurn();
  expect(await floodOpened()).toBeGreaterThan(opened);
});
