export default { output: 'standalone', serverExternalPackages: ['argon2'] }
