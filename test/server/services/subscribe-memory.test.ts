import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { BareGrpc } from "../../foreign/bare-grpc.ts";
import { encode } from "../../foreign/protobuf.ts";
import { heldBytes } from "../../heap.ts";
import { serveThings } from "../served.ts";

const path = "/watchfanout.v1.ListWatchService/Subscribe";
const watches = 1_000;

test("A watch on a stream of 1,000 takes less than 1 KiB", async () => {
  const { server, cacher } = await serveThings();
  const grpc = new BareGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(() => grpc.close());
  const live = (): number => cacher.stats().watchers.live;
  const open = async (): Promise<void> => {
    const before = live();
    const call = grpc.open(path);
    for (let id = 1; id <= watches; id++) {
      call.send(encode({ 1: encode({ 1: id, 2: encode({ 1: "things", 3: `${id}/` }) }) }));
    }
    const responses = call[Symbol.asyncIterator]();
    for (let id = 1; id <= watches; id++) await responses.next();
    while (live() < before + watches) await nextTurn();
  };
  // The code that the first ones load does not count.
  for (let i = 0; i < 3; i++) await open();
  const measured: number[] = [];
  for (let i = 0; i < 3; i++) {
    const before = heldBytes();
    await open();
    measured.push((heldBytes() - before) / watches);
  }
  expect(measured.sort((a, b) => a - b)[1]).toBeLessThan(1_024);
});
