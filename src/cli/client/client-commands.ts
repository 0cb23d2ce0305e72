import type { Command } from "commander";
import { type ClientIo, processIo } from "./client-session.ts";
import { addDelete } from "./delete.ts";
import { addGet } from "./get.ts";
import { addHealth } from "./health.ts";
import { addList } from "./list.ts";
import { addPut } from "./put.ts";
import { addResources } from "./resources.ts";
import { addWatch } from "./watch.ts";

/** Adds the commands that talk to a running service: get, list, watch, put, delete, resources, health. */
export function addClientCommands(program: Command, io: ClientIo = processIo): void {
  addGet(program, io);
  addList(program, io);
  addWatch(program, io);
  addPut(program, io);
  addDelete(program, io);
  addResources(program, io);
  addHealth(program, io);
}
