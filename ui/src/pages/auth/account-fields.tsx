/** The fields of a new account, for signing up and for setting up a server. */
import { useWatch } from "react-hook-form";
import type { useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { NewPasswordField } from "@/forms/new-password-field";
import { emailAddress, newPassword, personName } from "@/forms/rules";
import { z } from "@/forms/zod";

export const accountRules = z.object({ name: personName, email: emailAddress, password: newPassword });
type Account = z.infer<typeof accountRules>;

export function AccountFields({ form, field }: Pick<ReturnType<typeof useApiForm<Account, Account>>, "form" | "field">) {
  const [email, name, password] = useWatch({ control: form.control, name: ["email", "name", "password"] });
  return (
    <>
      <TextField label="Name" autoComplete="name" {...field("name")} />
      <TextField label="Email" type="email" autoComplete="username" {...field("email")} />
      <NewPasswordField label="Password" typed={password} person={{ email, name }} {...field("password")} />
    </>
  );
}
