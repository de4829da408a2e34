use crate::Report;
pub(crate) fn page(r: &Report) -> String {
    crate::format::escape(&r.title)
}
