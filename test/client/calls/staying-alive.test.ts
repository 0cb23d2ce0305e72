import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { deadAddress } from "../opened.ts";

const client = fileURLToPath(new URL("../../../src/client/index.ts", import.meta.url));

/** Programs that exit after three failures, and do nothing else until then. */
const programs = {
  watch: `for await (const _ of things.watch({ onInterruption: failed })) {}`,
  informer: `
    const informer = things.informer({ onWatchError: failed });
    informer.start();
    await informer.waitForSync();`,
  call: `
    await things.get("a", { timeoutMs: 2_000 }).catch(() => {});
    process.exit(42);`,
  "object cache": `
    const options = { client, resource: "things", codec: jsonValues(), onInterruption: failed };
    const cache = new ObjectCache(options);
    cache.addReference("a");
    await new Promise(() => {});`,
  "delayed key": `
    const queue = new WorkQueue();
    queue.addAfter("a", 100);
    await queue.get();
    process.exit(42);`,
};

it.each(Object.entries(programs))(
  "A program with nothing but one %s does not exit while the server is away.",
  async (_what, program) => {
    const source = `
      import { connect, jsonValues, ObjectCache, WorkQueue } from ${JSON.stringify(client)};
      const client = connect({ address: ${JSON.stringify(deadAddress)} });
      const things = client.resource("things", jsonValues());
      let failures = 0;
      const failed = () => { if (++failures === 3) process.exit(42); };
      ${program}`;
    const flags = ["--disable-warning=ExperimentalWarning", "--input-type=module", "--eval"];
    const run = promisify(execFile)(process.execPath, [...flags, source]);
    await expect(run).rejects.toMatchObject({ code: 42 });
  },
);
