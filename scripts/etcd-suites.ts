/**
 * Runs etcd's own tests with a watch-fanout before each member: `node scripts/etcd-suites.ts CHECKOUT FORM SUITE`.
 *
 * CHECKOUT is a checkout of etcd 3.6 or 3.7, which is not changed: Go reads the files of its test framework that have to
 * differ from elsewhere (-overlay). FORM is process, workers (two) or relay. SUITE is a folder below `tests`, such as
 * integration/..., common, e2e or robustness. What follows are flags of `go test`, such as -run.
 *
 * e2e and robustness start the binaries in CHECKOUT/bin, which `make build` of etcd puts there.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process, { argv, env, stdout } from "node:process";
import { createInterface } from "node:readline";
import { changes } from "./etcd-suites/changes.ts";
import { type Form, forms, serveFronts } from "./etcd-suites/fronts.ts";

const [checkout = "", form = "", suite = "", ...goFlags] = argv.slice(2);
if (suite === "" || !(forms as readonly string[]).includes(form)) {
  throw new Error(
    "usage: node scripts/etcd-suites.ts CHECKOUT process|workers|relay SUITE [FLAG...]",
  );
}
const root = resolve(import.meta.dirname, "..");
// Of workers as well.
env["NODE_COMPILE_CACHE"] = join(root, ".cache", "compiled");
const tests = resolve(checkout, "tests");
const own = join(import.meta.dirname, "etcd-suites");
/** The same each time, so that Go builds nothing twice. */
const folder = join(root, ".cache", "etcd-suites");
mkdirSync(folder, { recursive: true });
/** e2e has tests of its own for a proxy, and starts one before each member with this tag. */
const isE2e = /^(e2e|robustness)/.test(suite);
const isCommon = /^common/.test(suite);

/** Leaves a file as it is that another run may be reading. */
function write(path: string, content: string): void {
  if (existsSync(path) && readFileSync(path, "utf8") === content) return;
  writeFileSync(path, content, { mode: 0o755 });
}

const replaced: Record<string, string> = {
  [join(tests, "framework/integration/front.go")]: join(own, "front.go"),
};
for (const [file, ...texts] of changes) {
  const path = join(tests, file);
  let source = readFileSync(path, "utf8");
  for (const [text, by] of texts) {
    if (!source.includes(text)) throw new Error(`${path} does not contain ${JSON.stringify(text)}`);
    source = source.replaceAll(text, () => by);
  }
  replaced[path] = join(folder, `${path.replaceAll("/", "-")}`);
  write(replaced[path], source);
}
// By a file, as etcd's tests pass few variables on.
const front = join(folder, `front-${form}${suite.startsWith("robustness") ? "-notify" : ""}`);
// Its tests ask for this interval of the members.
const notify = suite.startsWith("robustness") ? "--watch-progress-notify-interval 100ms" : "";
const variables = `FLAGS="${notify}" FORM=${form} CHECKOUT=${root} NODE_COMPILE_CACHE=${env["NODE_COMPILE_CACHE"]}`;
write(front, `#!/bin/sh\n${variables} exec ${own}/front.sh "$@"\n`);

const overlay = join(folder, `overlay${tests.replaceAll("/", "-")}.json`);
write(overlay, JSON.stringify({ Replace: replaced }));

const fronts = await serveFronts(form as Form);
const tags = isE2e ? ["-tags", "cluster_proxy"] : isCommon ? ["-tags", "integration"] : [];
const go = spawn(
  "go",
  [
    "test",
    "-json",
    "-p",
    "1",
    "-count",
    "1",
    "-timeout",
    "60m",
    "-overlay",
    overlay,
    ...tags,
    `./${suite}`,
    ...goFlags,
  ],
  {
    cwd: tests,
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      ...env,
      FRONTS: fronts.url,
      FRONT: front,
      FIXTURES: join(tests, "fixtures"),
    },
  },
);

const exited = new Promise<number>((resolve) => go.on("close", (code) => resolve(code ?? 1)));

/** What `go test -json` says. */
interface Said {
  readonly Action: string;
  readonly Package?: string;
  readonly Test?: string;
  readonly Output?: string;
  readonly Elapsed?: number;
}

const counts = { pass: 0, fail: 0, skip: 0 };
const outputs = new Map<string, string[]>();
for await (const line of createInterface({ input: go.stdout })) {
  if (!line.startsWith("{")) {
    stdout.write(`${line}\n`);
    continue;
  }
  const { Action, Package, Test, Output, Elapsed } = JSON.parse(line) as Said;
  if (Package === undefined) stdout.write(Output ?? "");
  const name = `${Package} ${Test ?? ""}`;
  if (Output !== undefined) outputs.set(name, [...(outputs.get(name) ?? []), Output]);
  if (Action !== "pass" && Action !== "fail" && Action !== "skip") continue;
  // Only tests of the first level are counted. The output of those below has the reasons.
  if (Test !== undefined && !Test.includes("/")) counts[Action]++;
  stdout.write(`${Action} ${Elapsed}s ${name}\n`);
  if (Action === "fail") stdout.write((outputs.get(name) ?? []).join(""));
  outputs.delete(name);
}
for (const [name, lines] of outputs) stdout.write(`no result ${name}\n${lines.join("")}`);
await fronts.close();
process.exitCode = await exited;
stdout.write(
  `${form}, ${suite}: ${counts.pass} passed, ${counts.fail} failed, ${counts.skip} skipped\n`,
);
