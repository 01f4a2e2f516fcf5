/** A field for choosing a password: while a person types, the server says how easily it would be guessed. */
import { type ComponentProps, useEffect, useState } from "react";
import { ratePassword } from "@/api/auth";
import type { PasswordStrength } from "@/api/types";
import { cn } from "@/components/class-names";
import { PasswordField } from "./field";
import { PASSWORD_HELP } from "./rules";

const PAUSE_MS = 400;

type Person = { email?: string; name?: string };

/** Null until the server has answered for what is typed now. Kept out of the query cache, which outlives the form. */
function usePasswordStrength(password: string, { email = "", name = "" }: Person): PasswordStrength | null {
  const [rated, setRated] = useState<{ password: string; strength: PasswordStrength } | null>(null);
  useEffect(() => {
    if (password === "") return;
    let wanted = true;
    const timer = setTimeout(() => {
      ratePassword({ password, email, name }).then(
        (strength) => wanted && setRated({ password, strength }),
        // Only a hint: the server rates the password again when the form is sent.
        () => wanted && setRated(null),
      );
    }, PAUSE_MS);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [password, email, name]);
  return rated?.password === password ? rated.strength : null;
}

type NewPasswordFieldProps = ComponentProps<typeof PasswordField> & {
  /** What is typed now. */
  typed: string;
  person: Person;
};

export function NewPasswordField({ typed, person, ...rest }: NewPasswordFieldProps) {
  const strength = usePasswordStrength(typed, person);
  return (
    <PasswordField
      autoComplete="new-password"
      help={
        <>
          <p>{PASSWORD_HELP}</p>
          <div role="status">{strength && <StrengthHint strength={strength} />}</div>
        </>
      }
      {...rest}
    />
  );
}

const WORDS = ["Very weak", "Weak", "Too easy to guess", "Good", "Strong"];

function StrengthHint({ strength: { score, advice } }: { strength: PasswordStrength }) {
  const good = advice === null;
  return (
    <div className="mt-2">
      <div aria-hidden className="flex gap-1">
        {[1, 2, 3, 4].map((step) => (
          <span key={step} className={cn("h-1 flex-1 rounded-full bg-line-strong", step <= Math.max(score, 1) && (good ? "bg-teal-soft" : "bg-danger-soft"))} />
        ))}
      </div>
      <p className="mt-1 text-dim">
        <span className={cn("font-[560]", good ? "text-teal-soft" : "text-danger-soft")}>{WORDS[score]}.</span> {advice}
      </p>
    </div>
  );
}
