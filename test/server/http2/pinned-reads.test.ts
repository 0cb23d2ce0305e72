import { connect } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { listWatchService } from "../../../src/wire/services.ts";
import { heldBytes } from "../../heap.ts";
import { serveThings } from "../served.ts";
import { framed, RawConnection } from "./raw-connection.ts";

const { Get } = listWatchService;
const resource = "things";
const kibibyte = 1024;

const headersType = 1;
const endHeaders = 4;
const settingsType = 4;
/** An unknown frame type, which HTTP/2 ignores. */
const unknownType = 200;

function http2Frame(type: number, flags: number, id: number, content: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, content]);
}

const fields = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", Get.path],
  [":authority", "a"],
  ["content-type", "application/grpc"],
];
const headers = Buffer.concat(
  fields.flatMap(([name = "", value = ""]) => [
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]),
);

test("A complete request without its end retains none of the bytes that arrived with it", async () => {
  const { server, recorder } = await serveThings();
  const other = new RawConnection(server.port);
  const answer = (): Promise<unknown> =>
    other.call(Get.path, Get.requestSerialize({ resource, key: "a" })).drain().ended;
  await answer();
  const socket = connect(server.port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  socket.resume().write(preface);
  socket.write(http2Frame(settingsType, 0, 0, Buffer.alloc(0)));
  const before = heldBytes();
  const count = 500;
  const message = framed(Get.requestSerialize({ resource, key: "a" }));
  // One read of Node.js: 64 KiB, of which a few bytes are the request.
  const rest = http2Frame(unknownType, 0, 0, Buffer.alloc(16_000));
  for (let i = 0; i < count; i++) {
    const id = 2 * i + 1;
    const call = [http2Frame(headersType, endHeaders, id, headers), http2Frame(0, 0, id, message)];
    socket.write(Buffer.concat([...call, rest, rest, rest, rest]));
    if (i % 10 === 9) await recorder.untilStarted(2 + i);
  }
  await answer();
  expect((heldBytes() - before) / count).toBeLessThan(16 * kibibyte);
});
