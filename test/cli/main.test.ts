import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { compileCache } from "../compile-cache.ts";

const run = promisify(execFile);
const main = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const { engines, version } = JSON.parse(readFileSync("package.json", "utf8"));

/** What `watch-fanout --version` prints on a Node.js that says that it is of this version. */
async function onNode(node: string) {
  const versions = `{value:{...process.versions,node:"${node}"}}`;
  const preload = `data:text/javascript,Object.defineProperty(process,"versions",${versions})`;
  const args = ["--disable-warning=ExperimentalWarning", "--import", preload, main, "--version"];
  const ended = run(process.execPath, args, { env: compileCache });
  return await ended.then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
  );
}

test.each(["18.20.8", "20.20.2", "22.16.0", "23.11.1", "24.1.0"])(
  "on Node.js %s the command prints one line and fails",
  async (node) => {
    expect(await onNode(node)).toEqual({
      ...{ code: 1, stdout: "" },
      stderr: `watch-fanout needs Node.js ${engines.node}, and ${process.execPath} is ${node}.\n`,
    });
  },
);

test.each(["22.17.0", "22.101.0", "24.2.0", "26.0.0"])(
  "on Node.js %s the command runs",
  async (node) => {
    expect(await onNode(node)).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  },
);

test("before the check the command loads nothing that an older Node.js may not have", () => {
  const imports = readFileSync(main, "utf8").matchAll(/^import .*from "([^"]+)"/gm);
  expect([...imports].map(([, name]) => name)).toEqual(["node:fs", "node:process"]);
});

test.each(["serve --help", "etcd-proxy --help", "config check", "token generate"])(
  "%s loads nothing of the client library",
  async (command) => {
    const hooks = `registerHooks({load:(url,context,next)=>{if(/\\/src\\/client\\//.test(url))process.stderr.write(url);return next(url,context)}})`;
    const preload = `data:text/javascript,import{registerHooks}from"node:module";${hooks}`;
    const args = ["--disable-warning=ExperimentalWarning", "--import", preload, main];
    const { stderr } = await run(process.execPath, [...args, ...command.split(" ")], {
      env: compileCache,
    });
    expect(stderr).toBe("");
  },
);
