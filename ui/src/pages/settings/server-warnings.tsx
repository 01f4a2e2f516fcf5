/** What the operator of this server should change, for admins. */
import { useQuery } from "@tanstack/react-query";
import { serverWarningsQuery } from "@/api/account";
import { Notice } from "@/components/notice";

export function ServerWarnings() {
  const warnings = useQuery(serverWarningsQuery);
  return warnings.data?.items.map((sentence) => (
    <Notice key={sentence} tone="attention" role="status" className="mb-4">
      {sentence}
    </Notice>
  ));
}
