//! Templates: the information elements of a record, in order (RFC 7011 §3.4.1).

use alloc::vec::Vec;

/// The length of a variable-length field (§7).
pub(crate) const VARIABLE: u16 = 65_535;

/// A field of a template: the number of an information element in IANA's registry, and its octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TemplateField {
    pub(crate) element: u16,
    pub(crate) length: u16,
}

/// A template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    /// The set ID of its records: 256 or more (§3.3.2).
    pub(crate) id: u16,
    pub(crate) fields: &'static [TemplateField],
}

impl Template {
    /// Appends its template record.
    pub(crate) fn write_template_record(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&(self.fields.len() as u16).to_be_bytes());
        for field in self.fields {
            out.extend_from_slice(&field.element.to_be_bytes());
            out.extend_from_slice(&field.length.to_be_bytes());
        }
    }
}

/// Appends a value of variable length (§7), truncated to `most` octets.
pub(crate) fn write_variable_length_value(value: &[u8], most: usize, out: &mut Vec<u8>) {
    let value = &value[..value.len().min(most).min(usize::from(u16::MAX))];
    match u8::try_from(value.len()) {
        Ok(length) if length < 255 => out.push(length),
        _ => {
            out.push(255);
            out.extend_from_slice(&(value.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_variable_fields_are_as_figures_r_and_s_have_them() {
        let written = |length: usize, most: usize| {
            let mut out = Vec::new();
            write_variable_length_value(&vec![7; length], most, &mut out);
            (out.iter().take_while(|octet| **octet != 7).copied().collect::<Vec<_>>(), out.len())
        };
        assert_eq!(written(0, 999), (vec![0], 1));
        assert_eq!(written(254, 999), (vec![254], 255));
        assert_eq!(written(255, 999), (vec![255, 0, 255], 258));
        assert_eq!(written(1000, 300), (vec![255, 1, 44], 303));
    }
}
