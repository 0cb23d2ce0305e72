import { copyFileSync, existsSync, globSync, readFileSync, rmSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { grpcurl as binary } from "../../scripts/grpcurl.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { type Block, blocksOf, PageShell } from "./page-shell.ts";

const pages = ["README.md", ...globSync("docs/**/*.md").sort()];

/** Blocks that other tests run, or that can't be run here, by their beginnings. */
const elsewhere: Readonly<Record<string, readonly (readonly [string, string])[]>> = {
  "README.md": [
    ["npm ci\n", "CI does that"],
    ["$ npm run -s example", "test/examples/first-steps.test.ts"],
    [
      "watch-fanout serve --etcd http://10.0.0.1:2379 --resource instances",
      "test/xds/tiers.test.ts",
    ],
  ],
  "docs/client-guide.md": [["$ npm start", "test/examples/client-guide.test.ts"]],
  "docs/etcd-api.md": [["curl http://127.0.0.1:2379/v3/", "test/etcd-api/gateway/"]],
  "docs/soak.md": [
    ["FAULTS_SEED=23", "repeats a test"],
    ["npm run simulate", "takes half an hour; test/simulation runs fixed seeds"],
  ],
  "docs/installing.md": [
    ["npm ci\n", "CI does that"],
    ["npm pack --workspaces", "test/cli/pack.test.ts"],
    ["npm install --global", "test/cli/pack.test.ts"],
    ["npm install ./watch-fanout-client", "test/packages/client-package.test.ts"],
    ["esbuild main.ts", "test/runtimes/runtimes.test.ts"],
    ["docker build", "needs a container engine"],
    ["docker run", "needs a container engine"],
  ],
  "docs/other-languages.md": [["", "test/languages/languages.test.ts"]],
  "docs/policy.md": [["$ watch-fanout policy", "test/contract/policy-doc.test.ts"]],
  "docs/xds.md": [["", "test/mesh/xds.test.ts, and test/xds for the clients of gRPC"]],
  "docs/status.md": [["watch-fanout top\n", "needs a terminal: test/cli/top/"]],
};

const ran: Block[] = [];

/** The block of a page that begins so. */
function block(page: string, beginning: string): Block {
  const found = blocksOf(page).filter(({ text }) => text.startsWith(beginning));
  const [only] = found;
  if (only === undefined || found.length > 1) {
    throw new Error(`${page} has ${found.length} blocks of commands that begin with ${beginning}`);
  }
  ran.push(only);
  return only;
}

/** The YAML block of a page with this in it. */
function yamlOf(page: string, part: string): string {
  const found = readFileSync(page, "utf8").matchAll(/^```yaml\n(.*?)^```$/gms);
  const [text] = [...found].map(([, yaml = ""]) => yaml).filter((yaml) => yaml.includes(part));
  if (text === undefined) throw new Error(`${page} has no YAML block with ${part}`);
  return text;
}

function hasCommand(name: string): boolean {
  return (process.env["PATH"] ?? "").split(delimiter).some((path) => existsSync(join(path, name)));
}

async function etcdOfTest(): Promise<Etcd & { readonly etcdctl: string }> {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const { etcdctl } = etcd;
  if (etcdctl === undefined) throw new Error("There is no etcdctl beside etcd.");
  return Object.assign(etcd, { etcdctl });
}

/** A shell with an etcd at the address that pages name, and etcdctl. */
async function shellWithEtcd(named: string = "127.0.0.1:2379"): Promise<PageShell> {
  const etcd = await etcdOfTest();
  return await PageShell.open({
    replaced: [[named, new URL(etcd.url).host]],
    path: [dirname(etcd.etcdctl)],
    env: { ETCDCTL_ENDPOINTS: etcd.url },
  });
}

const started = "docs/getting-started.md";
const grpcurl = await binary.installed();
// Where it is absent its block counts as one that was run.
if (grpcurl === undefined) block(started, "$ grpcurl");

describe("The commands of", () => {
  test("README.md: an embedded store", async () => {
    const shell = await PageShell.open();
    await shell.run(block(started, "$ npm start\n"));
    await shell.run(block("README.md", "$ bin/watch-fanout put"));
    await shell.run(block("README.md", "$ curl"));
  });

  test("README.md: with etcd", async () => {
    const shell = await shellWithEtcd();
    await shell.run(block("README.md", "npm start -- --etcd"));
  });

  test("docs/http.md", async () => {
    const shell = await PageShell.open();
    await shell.run(block("docs/http.md", "$ npm start\n"));
    await shell.run(block("docs/http.md", "$ curl"));
  });

  test("docs/installing.md", async () => {
    const shell = await PageShell.open();
    await shell.run(block("docs/installing.md", "$ export PATH"));
    await shell.run(block("docs/installing.md", "$ watch-fanout config check"));
  });

  test("docs/getting-started.md: an embedded store", async () => {
    const shell = await PageShell.open({ path: ["node_modules/.bin"] });
    await shell.run(block(started, "$ npm start\n"));
    await shell.run(block(started, "$ bin/watch-fanout put ns-1/pod-7"));
    await shell.run(block(started, "$ buf curl"));
  });

  test("docs/getting-started.md: etcd's own clients", async () => {
    const shell = await PageShell.open({ path: [dirname((await etcdOfTest()).etcdctl)] });
    await shell.run(block(started, "$ npm start -- --etcd-api"));
  });

  test("docs/getting-started.md: what has changed", async () => {
    const shell = await PageShell.open();
    await shell.run(block(started, "$ npm start\n"));
    await shell.run(block(started, "$ bin/watch-fanout put web/config"));
  });

  test.skipIf(grpcurl === undefined)(
    "docs/getting-started.md: grpcurl (needs it: npm run test:grpcurl)",
    async () => {
      const shell = await PageShell.open({ path: [dirname(grpcurl ?? "")] });
      await shell.run(block(started, "$ npm start\n"));
      await shell.run(block(started, "$ bin/watch-fanout put ns-1/pod-7"));
      await shell.run(block(started, "$ grpcurl"));
    },
  );

  test("docs/getting-started.md: with etcd", async () => {
    const shell = await shellWithEtcd();
    await shell.run(block(started, "$ npm start -- --etcd http"));
    await shell.run(block(started, "$ etcdctl put"));
  });

  test("docs/getting-started.md: with selectors", async () => {
    const shell = await shellWithEtcd();
    shell.write("watch-fanout.yaml", yamlOf(started, "# watch-fanout.yaml"));
    await shell.run(block(started, "$ npm start -- --config"));
    await shell.run(block(started, "$ bin/watch-fanout put --resource pods"));
  });

  test("docs/embedded-store.md: backup, restore, and the way to etcd", async () => {
    const page = "docs/embedded-store.md";
    const shell = await shellWithEtcd();
    await shell.run(block(started, "$ npm start\n"));
    await shell.run(block("README.md", "$ bin/watch-fanout put"));
    await shell.run(block(page, "watch-fanout backup"));
    await shell.endAll();
    await shell.run(block(page, "watch-fanout restore"));
    await shell.run(block(page, "watch-fanout serve --data"));
    await shell.run(block(page, "watch-fanout export"));
    await shell.run(block(page, "$ watch-fanout serve --etcd"));
  });

  test("docs/scaling.md: workers", async () => {
    const shell = await PageShell.open();
    await shell.run(block("docs/scaling.md", "$ npm start -- --workers"));
  });

  test("docs/scaling.md: two tiers", async () => {
    const shell = await PageShell.open();
    await shell.run(block("docs/scaling.md", "npm start\n"));
    await shell.run(block("docs/scaling.md", "$ bin/watch-fanout resources"));
  });

  test("docs/security.md: a Unix socket", async () => {
    const shell = await PageShell.open();
    const own = await PageShell.open({ replaced: [["/run/watch-fanout", shell.folder]] });
    own.write(
      "policy.yaml",
      "roles: [{name: reader, rules: [{resources: ['*'], prefixes: ['*'], verbs: [list]}]}]\n" +
        "bindings: [{role: reader, subjects: [anonymous]}]\n",
    );
    await own.run(block("docs/security.md", "$ watch-fanout serve --listen unix:"));
  });

  test("docs/security.md: TLS, certificates and tokens", async () => {
    const shell = await PageShell.open({ replaced: [["--admin 0.0.0.0", "--admin 127.0.0.1"]] });
    await shell.run(block("docs/security.md", "$ watch-fanout serve --listen 0.0.0.0"));
    await shell.run(block("docs/security.md", "openssl req"));
    await shell.run(block("docs/security.md", "$ watch-fanout serve --tls-cert"));
    await shell.endAll();
    // The page shows the commands with an empty store each time.
    rmSync(join(shell.folder, "watch-fanout.data"), { recursive: true });
    await shell.run(block("docs/security.md", "$ watch-fanout token generate > alice.token"));
    await shell.endAll();
    for (const kind of ["pem", "key"]) {
      copyFileSync(join(shell.folder, `server.${kind}`), join(shell.folder, `admin.${kind}`));
    }
    await shell.run(block("docs/security.md", "watch-fanout token generate > prometheus.token"));
  });

  test("docs/status.md, docs/telemetry.md and docs/runbook.md", async () => {
    const shell = await shellWithEtcd();
    await shell.run(block("docs/telemetry.md", "watch-fanout serve --otlp-endpoint"));
    await shell.run(block("docs/telemetry.md", "curl -X PUT"));
    await shell.run(block("docs/runbook.md", "curl "));
    const status = block("docs/status.md", "curl -s");
    if (hasCommand("jq")) await shell.run(status);
  });

  test("docs/etcd-api.md, docs/from-grpc-proxy.md, README.md: etcd's own API", async () => {
    const etcd = await etcdOfTest();
    const { host } = new URL(etcd.url);
    const shell = await PageShell.open({
      replaced: [
        ["http://10.0.0.1:2379,http://10.0.0.2:2379", etcd.url],
        ["10.0.0.1:2379,10.0.0.2:2379", host],
        // The port of the service, as in other pages.
        [":2379", ":50051"],
      ],
      path: [dirname(etcd.etcdctl)],
    });
    await shell.run(block("docs/etcd-api.md", "watch-fanout serve --etcd"));
    await shell.endAll();
    await shell.run(block("docs/from-grpc-proxy.md", "watch-fanout etcd-proxy"));
    await shell.endAll();
    await shell.run(block("README.md", "watch-fanout etcd-proxy"));
  });
});

test("npm start is what the pages' commands run instead", () => {
  const { scripts } = JSON.parse(readFileSync("package.json", "utf8"));
  expect(scripts.start).toMatch(/^node (?:--\S+ )*src\/cli\/main\.ts serve$/);
});

test.each(pages)("All commands of %s are run by a test", (page) => {
  const known = elsewhere[page] ?? [];
  const missing = blocksOf(page).filter(
    ({ text }) =>
      !known.some(([beginning]) => text.startsWith(beginning)) &&
      !ran.some((other) => other.page === page && other.text === text),
  );
  expect(missing.map(({ text }) => text)).toEqual([]);
  const unused = known.filter(
    ([beginning]) => !blocksOf(page).some(({ text }) => text.startsWith(beginning)),
  );
  expect(unused).toEqual([]);
});
