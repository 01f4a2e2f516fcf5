import type { ModelArchitecture } from "@/api/types";

const NAMES: Record<ModelArchitecture, string> = { transformer: "Transformer", custom: "Custom" };

export const architectureName = (architecture: ModelArchitecture) => NAMES[architecture];
