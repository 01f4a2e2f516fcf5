/** What ran, as terms and values: the same in the card and in the web app. */
import { bytesText, countText, counted } from "./numbers";

type Git = { commit: string; branch?: string | null; remote?: string | null; changed?: boolean; untracked?: string[]; diff?: string | null };
type Dataset = { name: string; fingerprint?: string | null; rows?: number | null; path?: string | null; source?: string | null; split?: string | null };
export type WhatRan = {
  command?: string[];
  folder?: string | null;
  git?: Git | null;
  machine?: Record<string, unknown>;
  packages?: Record<string, string>;
  configs?: Record<string, unknown>;
  datasets?: Dataset[];
};

const shown = (value: unknown) => (value === null || value === undefined || value === "" ? [] : [String(value)]);

/** Enough to tell two apart; the whole one is in the API and on the command line. */
const short = (fingerprint: string) => (fingerprint.length > 20 ? `${fingerprint.slice(0, 19)}…` : fingerprint);

export const isEmpty = (ran: WhatRan | undefined) =>
  !ran || (!ran.command?.length && !ran.git?.commit && !ran.datasets?.length && !Object.keys(ran.configs ?? {}).length && !Object.keys(ran.machine ?? {}).length);

/** The short facts; changes, configs and packages are long and shown apart. */
export function whatRanFacts(ran: WhatRan): [string, string][] {
  const { git, machine = {} } = ran;
  const facts: [string, string[]][] = [
    ["Command", shown(ran.command?.join(" "))],
    ["Folder", shown(ran.folder)],
    ["Commit", git?.commit ? [`${git.commit.slice(0, 12)}${git.branch ? ` on ${git.branch}` : ""}${git.changed ? ", with changes" : ""}`] : []],
    ["Remote", shown(git?.remote)],
    ["Untracked files", git?.untracked?.length ? [git.untracked.join(", ")] : []],
    ["Host", shown(machine["host"])],
    ["System", shown(machine["system"])],
    ["Python", [...shown(machine["python"]), ...shown(machine["cuda"]).map((version) => `CUDA ${version}`)]],
    ["CPU", [...shown(machine["cpu"]), ...(typeof machine["cpus"] === "number" ? [counted(machine["cpus"], "core")] : [])]],
    ["Memory", typeof machine["ram_bytes"] === "number" ? [bytesText(machine["ram_bytes"])] : []],
  ];
  const datasets = (ran.datasets ?? []).map((data): [string, string[]] => [
    `Dataset ${data.name}`,
    [...shown(data.source ?? data.path), ...shown(data.split), ...(typeof data.rows === "number" ? [`${countText(data.rows)} rows`] : []), ...shown(data.fingerprint).map(short)],
  ]);
  return [...facts, ...datasets].filter(([, parts]) => parts.length > 0).map(([term, parts]) => [term, parts.join(", ")]);
}

/** The long parts: a title and a text each. */
export function whatRanTexts(ran: WhatRan): [string, string][] {
  const packages = Object.entries(ran.packages ?? {});
  const configs = Object.entries(ran.configs ?? {}).map(([name, config]): [string, string] => [`Config: ${name}`, JSON.stringify(config, null, 2)]);
  return [
    ...configs,
    ...(ran.git?.diff ? [["Changes since the commit", ran.git.diff] as [string, string]] : []),
    ...(packages.length > 0 ? [[`Packages (${countText(packages.length)})`, packages.map(([name, version]) => `${name}==${version}`).join("\n")] as [string, string]] : []),
  ];
}
