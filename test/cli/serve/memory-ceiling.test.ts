import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { hasReason } from "../../../src/base/errors.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { RawConnection } from "../../server/http2/raw-connection.ts";
import { TestClient } from "../../server/test-client.ts";
import { startServe } from "./serve-process.ts";

const { Watch } = listWatchService;
const resource = "default";

/** A file with a resource whose objects have labels. */
function configFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "memory-ceiling-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "wf.yaml");
  writeFileSync(path, 'resources:\n  - { name: default, prefix: "", codec: json }\n');
  return path;
}

/** Opens watches that each take half a MiB of heap, one after the other, until it is closed. */
class Filler {
  readonly #connection: RawConnection;
  opened = 0;
  refused = 0;
  #isClosed = false;

  constructor(port: number, name: string) {
    this.#connection = new RawConnection(port);
    void this.#fill(name);
  }

  close(): void {
    this.#isClosed = true;
    this.#connection.session.destroy();
  }

  async #fill(name: string): Promise<void> {
    for (let i = 0; !this.#isClosed; i++) {
      const terms = Array.from({ length: 1_000 }, (_, j) => `k${j}=${name}-${i}-`.padEnd(60, "v"));
      const request = Watch.requestSerialize({ resource, label_selector: terms.join() });
      const call = this.#connection.call(Watch.path, request);
      const ended = call.drain().ended;
      const headers = await Promise.race([call.answered, ended.then(() => undefined)]);
      if (headers === undefined) return;
      const code = headers["grpc-status"];
      if (code === undefined) this.opened++;
      else if (Number(code) === status.UNAVAILABLE) this.refused++;
    }
  }
}

test("A client that fills the heap with streams is refused; the process lives, and serves the others", async () => {
  const { process, grpc, admin } = await startServe(
    ["--config", configFile(), "--log-format", "json"],
    // The young generation as in the image, and with npm start.
    { NODE_OPTIONS: "--max-old-space-size=72 --max-semi-space-size=8" },
  );
  onTestFinished(() => process[Symbol.asyncDispose]());
  const port = Number(grpc.split(":")[1]);
  const client = new TestClient(port);
  onTestFinished(() => client.close());
  const honest = client.watch({ resource });
  await honest.next();
  const fillers = Array.from({ length: 8 }, (_, i) => new Filler(port, `f${i}`));
  const refused = (): number => fillers.reduce((sum, filler) => sum + filler.refused, 0);
  for (let i = 0; refused() < 100; i++) {
    const key = `k${i}`;
    await client.put({ resource, key, value: Buffer.from("{}") }).catch((error: unknown) => {
      const log = process.stderr.slice(-4_000);
      throw new Error(`An honest client's call failed. The end of the log:\n${log}`, {
        cause: error,
      });
    });
    await honest.until(({ events }) => events.some(({ object }) => object?.key === key));
  }
  await process.printed(/memory pressure has risen/);
  const ready = await (await fetch(`${admin}/readyz`)).text();
  expect(ready).toMatch(/^memory: memory pressure is \w+, and load is shed$/m);
  expect((await client.get({ resource, key: "k0" })).object?.key).toBe("k0");
  const metrics = await (await fetch(`${admin}/metrics`)).text();
  expect(metrics).toMatch(/watch_fanout_shed_calls_total\{kind="stream"\} [1-9]/);
  // Far more than these would end the process.
  expect(fillers.reduce((sum, { opened }) => sum + opened, 0)).toBeGreaterThan(10);
  for (const filler of fillers) filler.close();
  // Once their memory is released, new streams are served again.
  for (;;) {
    const watch = client.watch({ resource });
    try {
      await watch.next();
      watch.cancel();
      break;
    } catch {
      expect(hasReason(await watch.ended, "OVERLOADED")).toBe(true);
    }
  }
  await process.printed(/memory pressure has fallen/);
  honest.cancel();
});
