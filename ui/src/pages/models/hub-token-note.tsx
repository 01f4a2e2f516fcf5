import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { hubTokenQuery } from "@/api/models";

/** Says whether what is private or gated can be fetched. */
export function HubTokenNote() {
  const token = useQuery(hubTokenQuery);
  if (!token.data) return null;
  return (
    <p className="text-xs text-faint">
      {token.data.present ? "Your Hub token is used for it. " : "What is private or asks to accept terms needs your Hub token. "}
      <Link to="/settings" search={{ tab: "tokens" }} className="text-violet-soft underline underline-offset-2">
        {token.data.present ? "Change it in the settings" : "Add it in the settings"}
      </Link>
    </p>
  );
}
