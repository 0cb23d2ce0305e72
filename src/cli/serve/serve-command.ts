import type { Command } from "commander";
import { exitCodes } from "../output/exit-codes.ts";
import { printableText } from "../output/printable.ts";
import { obsoleteOptions } from "./obsolete-options.ts";
import { openAccess } from "./open-access.ts";
import { addServeFlags, readConfig } from "./serve-flags.ts";
import { uncachedEtcdApi } from "./uncached-etcd-api.ts";

const helpFooter = `
Every option is also an environment variable (--etcd-ca is WATCH_FANOUT_ETCD_CA)
and a key of the file (etcd-ca). A flag takes precedence over a variable, a
variable over the file. The etcd password has no flag: use
WATCH_FANOUT_ETCD_PASSWORD, etcd-password in the file, or --etcd-password-file.
"watch-fanout config check" takes the same options and only checks them.

While etcd, or the upstream of a relay, is unreachable the service runs, is not
ready (/readyz has the reason) and retries. SIGTERM and SIGINT shut it down
gracefully, and so does closing its terminal. A second signal ends it at once.
Files that change are read without a signal.

Examples:
  watch-fanout serve
  watch-fanout serve --etcd http://127.0.0.1:2379 --resource services=/services/
  watch-fanout serve --upstream 127.0.0.1:50051 --listen 127.0.0.1:50052 \\
    --admin 127.0.0.1:8082
`;

/** Adds `serve`, with a flag for every option of the configuration. */
export function addServeCommand(program: Command): void {
  const command = program
    .command("serve")
    .description(
      "Serve resources of etcd, of another watch-fanout, or of an embedded store, until SIGTERM or SIGINT.",
    )
    .addHelpText("after", helpFooter);
  const typed = addServeFlags(command);
  command.action(async () => {
    const loaded = readConfig(command, typed());
    // Imported here, since the client commands start faster without the server.
    const { serve } = await import("./serve.ts");
    await serve(loaded);
  });
}

/** Adds `config check`, with the flags of `serve`. It needs no service. */
export function addConfigCommand(program: Command): void {
  const command = program
    .command("config")
    .description("Check a configuration.")
    .command("check")
    .description(
      "Check the flags of serve, its variables and its file, with the files that they name, and print all problems. Nothing " +
        "is started.",
    )
    .addHelpText("after", `\nExit codes: 0, or ${exitCodes.usage} with a problem.\n`);
  const typed = addServeFlags(command);
  command.action(() => {
    const { config } = readConfig(command, typed());
    for (const warning of [openAccess(config), uncachedEtcdApi(config), obsoleteOptions(config)]) {
      if (warning !== undefined) process.stderr.write(`warning: ${printableText(warning)}\n`);
    }
    process.stdout.write("The configuration is valid.\n");
  });
}
