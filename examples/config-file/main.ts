/**
 * Keeps a file equal to the value of one key, and runs a command after each change. The file always has a complete
 * content: the latest known one, also while the service is unavailable or the key does not exist. In three terminals:
 *
 *     npm start
 *
 *     npm run example examples/config-file/main.ts web/config /tmp/web.json 'echo the config has changed'
 *
 *     bin/watch-fanout put web/config '{"workers":4}'
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, readFile, realpath, rename, rm, stat, writeFile } from "node:fs/promises";
import { bytes, connect } from "watch-fanout/client";

const [key, path, hook] = process.argv.slice(2);
if (key === undefined || path === undefined) {
  console.error("Usage: npm run example examples/config-file/main.ts KEY FILE [COMMAND]");
  process.exit(2);
}

const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const resource = client.resource("default", bytes);
try {
  // Changes that arrive while the command runs are coalesced to the latest one.
  for await (const object of resource.follow(key, {
    signal: stopping.signal,
    onInterruption: ({ error }) => console.error(`${path} stays as it is: ${error.message}`),
  })) {
    if (object === undefined) console.error(`${path} stays as it is: there is no ${key}.`);
    else if (await replace(path, object.value)) {
      console.log(`${path} is ${key} at revision ${object.modRevision}.`);
      if (hook !== undefined) await run(hook);
    }
  }
} finally {
  client.close();
}

/**
 * Replaces the file in one step: a reader gets either the old content or the new one. Resolves to whether the content
 * has changed.
 */
async function replace(path: string, content: Uint8Array): Promise<boolean> {
  const file = await realpath(path).catch(absent);
  if (file !== undefined && (await readFile(file)).equals(content)) return false;
  const target = file ?? path;
  const temporary = `${target}.${process.pid}.tmp`;
  try {
    await writeFile(temporary, content, { mode: 0o600, flush: true });
    // An existing file keeps its mode.
    await chmod(temporary, file === undefined ? 0o644 : (await stat(file)).mode & 0o7777);
    await rename(temporary, target);
  } finally {
    await rm(temporary, { force: true });
  }
  return true;
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}

/** Changes during the command are not lost: the latest one follows. */
async function run(command: string): Promise<void> {
  const child = spawn(command, { shell: true, stdio: "inherit", timeout: 30_000 });
  const [code, signal] = await once(child, "close");
  if (code !== 0) console.error(`${command} ended with ${signal ?? code}.`);
}
