import type { OAuthProvider } from "@/api/types";

const NAMES: Record<OAuthProvider, string> = { github: "GitHub", google: "Google" };

export const providerName = (provider: OAuthProvider) => NAMES[provider];
