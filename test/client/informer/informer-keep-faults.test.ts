import { fork } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { Logger } from "../../../src/base/logger.ts";
import { nodeDisk } from "../../../src/cache-files/disk.ts";
import type { ResourceInformerOptions } from "../../../src/client/typed/typed-resource.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { temporaryFolder } from "../../cache-files/kept-cache.ts";
import { silent } from "../../cacher/cached-store.ts";
import { served, started, stored } from "./kept-informer.ts";

/** The lines of a log that are warnings, with the problem that they name. */
function recorded(): { readonly logger: Logger; readonly lines: string[] } {
  const lines: string[] = [];
  const warn = (fields: object, text: string): void => {
    lines.push(`${text}: ${"problem" in fields ? fields.problem : ""}`);
  };
  return { lines, logger: { info: () => {}, warn, error: warn } };
}

const unused = "a file of a kept state is not used; nothing is loaded";
const notKept = "can't keep the newest state on disk";

/** A server with two objects, and a folder with what an informer of it has kept. */
async function keptState(options: ResourceInformerOptions<string> = {}) {
  // With labels, so that there may be selectors.
  const attributes = new AttributeReader(new JsonCodec({ fields: [] }), systemClock, silent);
  const service = await served({ attributes });
  await service.put("a", "1");
  await service.put("b", "1");
  const folder = await temporaryFolder();
  const first = started(service.server.address, folder, options);
  await first.synced();
  await stored(folder);
  await first.stop();
  const lists = service.lists();
  /** Another start, and what it has logged. Lists and follows the server, as without a folder. */
  const startsCold = async (
    again: ResourceInformerOptions<string>,
    lines: readonly string[],
    expected: readonly unknown[],
  ): Promise<void> => {
    const second = started(service.server.address, folder, again);
    await second.synced();
    expect(service.lists()).toBe(lists + 1);
    await service.put("a", "2");
    await vi.waitFor(() => expect(second.informer.indexer.get("a")?.value).toBe("2"));
    expect(second.informer.indexer.get("b")?.value).toBe("1");
    await second.stop();
    expect(lines).toEqual(expected);
  };
  return { ...service, folder, startsCold };
}

/** Changes one byte in each file of a kind. */
async function damage(folder: string, kind: string): Promise<void> {
  for (const name of (await readdir(folder)).filter((each) => each.endsWith(kind))) {
    const bytes = await readFile(join(folder, name));
    const at = bytes.length - 20;
    bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
    await writeFile(join(folder, name), bytes);
  }
}

describe("An informer starts cold, with one line that says why, and works, where", () => {
  it("the folder can't be created", async () => {
    const { server, put, lists } = await served();
    await put("a", "1");
    const file = join(await temporaryFolder(), "file");
    await writeFile(file, "");
    const { logger, lines } = recorded();
    const { informer, synced, stop } = started(server.address, join(file, "informer"), { logger });
    await synced();
    await put("a", "2");
    await vi.waitFor(() => expect(informer.indexer.get("a")?.value).toBe("2"));
    await stop();
    expect(lists()).toBe(1);
    expect(lines).toEqual([expect.stringContaining(`${notKept}: ENOTDIR`)]);
  });

  it("the folder can't be written to", async () => {
    const { startsCold } = await keptState();
    const denied = Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
    // Root, as which the tests may run, may write everywhere.
    const makeFolder = vi.spyOn(nodeDisk, "makeFolder").mockRejectedValue(denied);
    onTestFinished(() => makeFolder.mockRestore());
    const { logger, lines } = recorded();
    await startsCold({ logger }, lines, [`${notKept}: EACCES: permission denied`]);
  });

  it("another process has the folder", async () => {
    const { startsCold, folder } = await keptState();
    const holding = new URL("../../cache-files/holding-process.ts", import.meta.url);
    const child = fork(holding, [folder], {
      execArgv: ["--disable-warning=ExperimentalWarning"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    await once(child, "message");
    const { logger, lines } = recorded();
    const problem = "The folder can't be locked for this process: database is locked";
    await startsCold({ logger }, lines, [`${notKept}: ${problem}`]);
  });

  it("the file is damaged", async () => {
    const { startsCold, folder } = await keptState();
    await damage(folder, ".snapshot");
    const { logger, lines } = recorded();
    await startsCold({ logger }, lines, [`${unused}: it is damaged`]);
  });

  it("the file is of another resource", async () => {
    const { startsCold } = await keptState({ name: "pods" });
    const { logger, lines } = recorded();
    await startsCold({ logger }, lines, [`${unused}: it is of the resource "pods"`]);
  });

  it("the selectors were changed", async () => {
    const { startsCold } = await keptState({ labelSelector: "!app" });
    const { logger, lines } = recorded();
    await startsCold({ logger }, lines, [`${unused}: it was kept with another source`]);
  });

  it("it is larger than the bound of the informer", async () => {
    const { folder, server, put } = await keptState();
    await put("c", "x".repeat(5_000));
    const { logger, lines } = recorded();
    const { informer, stop } = started(server.address, folder, { logger, maxBytes: 100 });
    await vi.waitFor(() => expect(informer.failure?.reason).toBe("INVALID_REQUEST"));
    expect(informer.indexer.list()).toEqual([]);
    await stop();
    expect(lines[0]).toBe(
      "a kept state is not used; nothing is loaded: it is larger than maxBytes",
    );
  });

  it("the server did not know the id of its history", async () => {
    const { server, put, lists } = await served({}, 0, false);
    await put("a", "1");
    const folder = await temporaryFolder();
    const first = started(server.address, folder);
    await first.synced();
    expect(first.informer.historyId).toBe("");
    await stored(folder);
    await first.stop();
    const { logger, lines } = recorded();
    const second = started(server.address, folder, { logger });
    await second.synced();
    expect(lists()).toBe(2);
    expect(lines).toEqual([expect.stringContaining("the id of its history was not known")]);
  });
});

it("An informer whose disk is full has what it had kept before, and reports it once", async () => {
  const { server, folder, put } = await keptState();
  const full = Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
  const create = vi.spyOn(nodeDisk, "create").mockRejectedValue(full);
  onTestFinished(() => create.mockRestore());
  const { logger, lines } = recorded();
  const { informer, stop } = started(server.address, folder, { logger });
  for (const value of ["2", "3"]) {
    await put("a", value);
    await vi.waitFor(() => expect(informer.indexer.get("a")?.value).toBe(value));
  }
  await vi.waitFor(() => expect(lines).toEqual([`${notKept}: ENOSPC: no space left on device`]));
  await stop();
  create.mockRestore();
  const again = started(server.address, folder);
  await again.synced();
  await vi.waitFor(() => expect(again.informer.indexer.get("a")?.value).toBe("3"));
});

it("An informer whose type of objects has changed reports each kept value that it can't decode, as one from the server", async () => {
  const { server, folder, put, lists } = await served().then(async (service) => {
    const used = await temporaryFolder();
    await service.put("a", "1");
    await service.put("b", "old format");
    const first = started(service.server.address, used);
    await first.synced();
    await stored(used);
    await first.stop();
    return { ...service, folder: used };
  });
  const errors: string[] = [];
  const codec = {
    decode: (value: Uint8Array): string => {
      const text = Buffer.from(value).toString();
      if (text === "old format") throw new SyntaxError("it has the old format.");
      return text;
    },
    encode: (text: string) => Buffer.from(text),
  };
  const second = started(
    server.address,
    folder,
    { onError: ({ message }) => errors.push(message) },
    codec,
  );
  await second.synced();
  expect(second.informer.indexer.list().map(({ key }) => key)).toEqual(["a"]);
  expect(errors).toEqual([expect.stringContaining("it has the old format")]);
  await put("b", "new");
  await vi.waitFor(() => expect(second.informer.indexer.get("b")?.value).toBe("new"));
  expect(lists()).toBe(1);
});
