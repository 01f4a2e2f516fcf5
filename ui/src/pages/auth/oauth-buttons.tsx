import { oauthStart } from "@/api/auth";
import type { OAuthProvider } from "@/api/types";
import { Button } from "@/components/button";
import { providerName } from "@/shell/oauth-provider";

type OAuthButtonsProps = { providers: OAuthProvider[]; next: string };

export function OAuthButtons({ providers, next }: OAuthButtonsProps) {
  if (providers.length === 0) return null;
  return (
    <div className="mt-5 grid gap-2">
      <div className="mb-1 flex items-center gap-3 text-xs text-faint before:h-px before:flex-1 before:bg-line after:h-px after:flex-1 after:bg-line">
        or
      </div>
      {providers.map((provider) => (
        <Button key={provider} asChild size="large">
          <a href={oauthStart(provider, next)}>Continue with {providerName(provider)}</a>
        </Button>
      ))}
    </div>
  );
}
