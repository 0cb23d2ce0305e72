import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/client/connect.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { sumOf, until } from "../relay/tiers.ts";
import { RawConnection, type RawEnd } from "../server/http2/raw-connection.ts";

const { Get } = listWatchService;
/** So many and so large that a worker needs some time for them. */
const objects = 1_500;
const value = Buffer.alloc(4_000);

test("A worker gets no connection before its caches have synced: no call is NOT_READY while it is replaced.", async () => {
  const served = await startServe(["--workers", "2"]);
  onTestFinished(() => served.process[Symbol.asyncDispose]());
  await untilStatus(`${served.admin}/readyz`, 200);
  // A busy machine may take longer for so many writes at once than the default permits.
  const client = connect({ address: served.grpc, timeoutMs: 60_000 });
  onTestFinished(() => client.close());
  for (let i = 0; i < objects; i += 100) {
    await Promise.all(
      Array.from({ length: 100 }, (_, j) => client.put("default", `key/${i + j}`, value)),
    );
  }
  const port = Number(served.grpc.split(":").at(-1));
  const request = Get.requestSerialize({ resource: "default", key: "key/0" });

  /** A read over a connection of its own. */
  async function read(): Promise<RawEnd> {
    const connection = new RawConnection(port);
    const end = await connection.call(Get.path, request).drain().ended;
    connection.drop();
    return end;
  }

  const [, victim] = /"worker":1,"pid":(\d+),"msg":"a worker has started"/.exec(
    served.process.stderr,
  ) ?? ["", ""];
  process.kill(Number(victim), "SIGKILL");
  let isReplaced = false;
  const replaced = until(async () => {
    const metrics = await untilStatus(`${served.admin}/metrics`, 200);
    isReplaced =
      /^watch_fanout_worker_restarts_total\{worker="1"\} 1$/m.test(metrics) &&
      sumOf(metrics, "watch_fanout_worker_ready") === 2;
    return isReplaced;
  });
  const unserved: RawEnd[] = [];
  let reads = 0;
  while (!isReplaced) {
    const end = await read();
    reads++;
    // The connection was the killed worker's.
    const isLost = end.code === undefined;
    if (end.code !== status.OK && !isLost) unserved.push(end);
  }
  await replaced;
  expect(unserved).toEqual([]);
  expect(reads).toBeGreaterThan(0);
});
